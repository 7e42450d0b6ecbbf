"""Bounded queues and batched searches."""

import asyncio
import threading

from visterm.pipeline.service.batching import MicroBatcher, Pool


def test_full_queue(made, serving, photos):
    """Searches by id and everything else have bounded queues of their own."""
    number = photos.id("fig/1.jpg")
    with serving(made) as client:
        searches, general, release = client.handlers.search_batcher, client.handlers.general_pool, threading.Event()
        searches.max_waiting, searches.batch_size = 2, 1
        general.max_pending = 3
        answered, held = [], []

        def hold(*asked):
            held.append(asked)
            assert release.wait(300)
            return [{}] * len(asked[0]) if isinstance(asked[0], list) else {}

        searches.function = client.handlers.search_one = hold
        by_id, within_label = f"/search?id={number}", f"/search?id={number}&label=fig"
        threads = []

        def ask(path, times, arrived):
            for _ in range(times):
                threads.append(threading.Thread(target=lambda: answered.append(client.get(path))))
                threads[-1].start()
            client.wait_until(arrived)

        for i in range(searches.workers):  # one by one: together some would find the queue full
            ask(by_id, 1, lambda i=i: len(held) == i + 1)
        ask(by_id, 2, lambda: searches.n_waiting == 2)
        ask(within_label, 3, lambda: general.n_pending == 3)
        full = [client.get(path) for path in (by_id, within_label, "/marks?query=" + "0" * 64)]
        upload = client.upload(photos.data("fig/1.jpg"))
        assert client.get("/health").status_code == 200
        release.set()
        for thread in threads:
            thread.join()
        for answer in (*full, upload):
            client.check_error(answer, 429, "try again")
            assert answer.headers["retry-after"] == "1"
        assert [answer.status_code for answer in answered] == [200] * len(threads)


def test_request_right_after_a_response_finds_a_worker():
    async def ask():
        batcher = MicroBatcher(lambda requests: requests, workers=1, max_waiting=2, batch_size=1)
        return [await batcher.run(request) for request in range(3)]

    assert asyncio.run(asyncio.wait_for(ask(), 60)) == [0, 1, 2]


def test_burst_of_calls():
    """Calls that arrive in one step of the event loop are counted, too."""

    async def burst():
        pool = Pool(workers=1, max_waiting=2)
        return await asyncio.gather(*(pool.run(lambda: "done") for _ in range(5)), return_exceptions=True)

    assert [getattr(result, "status_code", result) for result in asyncio.run(burst())] == ["done"] * 3 + [429] * 2


def test_client_that_disconnects_while_a_batch_runs():
    async def disconnect():
        release = threading.Event()
        batcher = MicroBatcher(lambda requests: release.wait() and requests, workers=1, max_waiting=2, batch_size=2)
        first, second = (asyncio.create_task(batcher.run(request)) for request in range(2))
        await asyncio.sleep(0)  # both are in the batch
        first.cancel()
        release.set()
        return await second

    assert asyncio.run(disconnect()) == 1


def test_updates_and_new_indexes_delay_no_search(made, serving):
    """Updates have a thread of their own, and so have searches with learners that have an index."""
    with serving(made) as client:
        shared, release = client.handlers, threading.Event()
        client.feedback.trainer.update = lambda _: release.wait() and {"accepted": False}
        searcher, index = shared.snapshot.searcher, shared.snapshot.searcher.index
        searcher.index = lambda name: index(name) if name == "oasis" or release.wait() else None
        shared.search_batcher.workers = 1
        asked = [
            threading.Thread(target=client.post, args=("/feedback/update",), kwargs={"json": {}}) for _ in range(4)
        ] + [threading.Thread(target=client.get, args=("/search?id=1&learner=cosine",))]
        for thread in asked:
            thread.start()
        try:
            client.wait_until(lambda: (shared.update_pool.n_pending, shared.general_pool.n_pending) == (4, 1))
            assert client.get("/search?id=1").status_code == 200
            assert client.get("/images/1/thumbnail").status_code == 200
        finally:
            release.set()
            for thread in asked:
                thread.join()
