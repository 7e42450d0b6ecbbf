"""Queues that refuse what waits for too long, and batched searches."""

import asyncio
import threading
import time

import pytest
from starlette.exceptions import HTTPException

from visterm.service import batching, middleware
from visterm.service.batching import MicroBatcher, NicePool, RequestPlaces
from visterm.service.subjects.marks import MarkSubject
from visterm.service.subjects.search import SearchSubject


def test_requests_that_wait_for_too_long(made, serving, photos, monkeypatch):
    """Searches by id, uploads and everything else have queues of their own; none holds up the state of the service."""
    monkeypatch.setattr(middleware, "START_SECONDS", 300.0)  # a busy machine may begin late, which is no queue's doing
    number = photos.id("fig/1.jpg")
    with serving(made) as client:
        client.declared, parts, release = False, client.parts, threading.Event()
        searches = client.subjects.of(SearchSubject)
        held, answered = [], []

        def hold(*asked):
            held.append(asked)
            assert release.wait(300)
            return [{}] * len(asked[0]) if isinstance(asked[0], list) else {}

        by_id, within_label = f"/search?id={number}", f"/search?id={number}&label=fig"
        assert client.get(by_id).status_code == 200  # before, the index is not there, and batches wait for none
        searches.batcher.function = searches.search_one = hold
        parts.read_upload = lambda *_: hold({}) and None
        kinds = (
            (lambda: client.get(by_id), searches.batcher.workers),
            (lambda: client.get(within_label), parts.general_pool.places),
            (lambda: client.upload(photos.data("fig/1.jpg")), parts.upload_pool.places),
        )
        threads = []
        for ask, n_threads in kinds:
            for _ in range(n_threads):  # one by one: searches by id would share a batch
                threads.append(threading.Thread(target=lambda ask=ask: answered.append(ask())))
                threads[-1].start()
                client.wait_until(lambda: answered or len(held) == len(threads))
                assert not answered
        for queue in (searches.batcher, parts.general_pool, parts.upload_pool):
            queue.max_seconds = 0.1  # from now on: a busy machine may need longer to begin with those above
        threads.append(threading.Thread(target=client.get, args=(by_id,)))  # waits: the next is refused at once
        threads[-1].start()
        client.wait_until(lambda: searches.batcher.n_waiting == 1)
        time.sleep(0.1)
        for ask, _ in kinds:
            answer = ask()
            client.check_error(answer, 429, "try again")
            assert answer.headers["retry-after"] == "1"
        assert client.get("/health").status_code == 200
        release.set()
        for thread in threads:
            thread.join()


def test_requests_that_waited_for_too_long_get_no_place():
    """A request that gave up passes its place on, and places are given in the order of the requests."""

    async def ask():
        places, order = RequestPlaces(1, 0.01), []

        async def request(name):
            async with places.place():
                order.append(name)

        async with places.place():
            with pytest.raises(HTTPException) as refused:
                await request("late")
            places.max_seconds = 60
            waiting = [asyncio.create_task(request(name)) for name in "abc"]
            await asyncio.sleep(0)
        waiting[0].cancel()  # in the step that gives it the place
        await asyncio.gather(*waiting, return_exceptions=True)
        return refused.value.status_code, order, places.n_pending

    assert asyncio.run(asyncio.wait_for(ask(), 60)) == (429, ["b", "c"], 0)

    async def ask():
        release = threading.Event()
        batcher = MicroBatcher(lambda requests: release.wait() and requests, workers=1, max_seconds=60, batch_size=9)
        asked = [asyncio.create_task(batcher.run(0))]
        await asyncio.sleep(0)
        asked.append(asyncio.create_task(batcher.run(1)))
        await asyncio.sleep(0.1)
        batcher.max_seconds = 0.05  # from now on: a busy machine may need longer to begin with the first one
        release.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    done, refused = asyncio.run(ask())
    assert (done, refused.status_code) == (0, 429)


def test_memory_is_returned_after_the_last_upload(monkeypatch):
    trimmed = threading.Event()
    monkeypatch.setattr(batching, "_trim_memory", trimmed.set)
    monkeypatch.setattr(batching, "_TRIM_SECONDS", 0.0)

    async def upload():
        pool = NicePool(1, 60)
        thread = await pool.run(lambda: threading.current_thread().name)
        assert thread.startswith("visterm-pictures")
        while not trimmed.is_set():
            await asyncio.sleep(0.001)
        pool.close()

    asyncio.run(asyncio.wait_for(upload(), 60))


def test_request_right_after_a_response_finds_a_worker():
    async def ask():
        batcher = MicroBatcher(lambda requests: requests, workers=1, max_seconds=60, batch_size=1)
        return [await batcher.run(request) for request in range(3)]

    assert asyncio.run(asyncio.wait_for(ask(), 60)) == [0, 1, 2]


def test_client_that_disconnects_while_a_batch_runs():
    async def disconnect():
        release = threading.Event()
        batcher = MicroBatcher(lambda requests: release.wait() and requests, workers=1, max_seconds=60, batch_size=2)
        first, second = (asyncio.create_task(batcher.run(request)) for request in range(2))
        await asyncio.sleep(0)  # both are in the batch
        first.cancel()
        release.set()
        return await second

    assert asyncio.run(disconnect()) == 1


def test_updates_and_new_indexes_delay_no_search(made, serving):
    """Updates have a thread of their own, and so have searches with learners that have an index."""
    with serving(made) as client:
        shared, release = client.parts, threading.Event()
        client.declared = False
        client.subjects.of(MarkSubject).trainer.update = lambda _: release.wait() and {"accepted": False}
        searcher, index = shared.snapshot.searcher, shared.snapshot.searcher.index
        searcher.index = lambda name, learned_weight=1.0: index(name) if name == "oasis" or release.wait() else None
        client.subjects.of(SearchSubject).batcher.workers = 1
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
