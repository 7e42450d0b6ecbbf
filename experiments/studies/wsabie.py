"""Settings that cross-validation chooses for WSABIE, LightFM and LinearSVC."""

from benchmarks.wsabie import compare_quality


def main(_: list[str]) -> None:
    for d in (1000, 10_000):
        compare_quality(d, quick=False, show=show_choice)


def show_choice(d, fold, p_at_1, chosen) -> None:
    print(f"d = {d}, split {fold}: " + ", ".join(f"{name} {value:.4f}" for name, value in p_at_1.items()), flush=True)
    for name, settings in chosen.items():
        print(f"    {name}: " + ", ".join(f"{key} {value}" for key, value in settings.items()), flush=True)
