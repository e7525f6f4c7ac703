"""How rows are shown: a table of text, a block in a Markdown file, a plot."""
import json
import re

HEADINGS = ("name", "threads", "ours", "peer", "by", "ratio", "goal", "reached", "% of peak")
BEGIN, END = "<!-- begin bench/run -->", "<!-- end bench/run -->"


def amount(value, unit):
    if value is None:
        return "-"
    if unit == "bytes":
        return f"{value / 2**20:.0f} MB"
    return f"{1000 * value:.4g} ms" if unit == "seconds per step" else f"{value:.3g} s"


def cells(row):
    """The texts of a row, in the order of the headings."""
    peer = row["peer_name"] or "-"
    if row["peer_setting"]:
        peer += f", {row['peer_setting']}"
    return (
        row["name"],
        str(row["threads"]),
        amount(row["ours"], row["unit"]),
        amount(row["peer"], row["unit"]),
        peer,
        "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
        "-" if row["goal"] is None else f"{row['goal']:g}",
        {None: "-", True: "yes", False: "no"}[row["reached"]],
        "-" if row["percent_of_peak"] is None else f"{row['percent_of_peak']:.0f}",
    )


def table(rows):
    lines = [HEADINGS, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    is_text = [heading in ("name", "by") for heading in HEADINGS]

    def padded(line):
        columns = zip(line, widths, is_text)
        return "  ".join(c.ljust(w) if left else c.rjust(w) for c, w, left in columns)

    return "\n".join(map(padded, lines))


def markdown(content):
    """What a run measured, and the command that measured it."""
    lines = [f"`{content['command']}`, {content['date']}, commit {content['commit']}, on"]
    lines[-1] += f" {content['cpu']}, PyTorch {content['torch']}, BLAS {content['blas']}"
    if content["peak"]:
        lines[-1] += f", FMA peak {content['peak'] / 1e9:.1f} GFLOP/s a thread"
    lines[-1] += ":"
    if content["rows"]:
        align = [":--" if heading in ("name", "by") else "--:" for heading in HEADINGS]
        lines += ["", f"| {' | '.join(HEADINGS)} |", f"| {' | '.join(align)} |"]
        lines += [f"| {' | '.join(cells(row))} |" for row in content["rows"]]
    if content["failures"]:
        lines += ["", "Not measured:", ""]
        lines += [f"- {failure}" for failure in content["failures"]]
    return "\n".join(lines)


def has_block(text, begin=BEGIN, end=END):
    return len(re.findall(f"{begin}.*?{end}", text, re.DOTALL)) == 1


def put_into(file, words, begin=BEGIN, end=END):
    """Replaces the block of the last run."""
    start, rest = file.read_text().split(begin)
    file.write_text(f"{start}{begin}\n{words}\n{end}{rest.split(end)[1]}")


def write_json(file, content):
    file.write_text(json.dumps(content, indent=1) + "\n")


def plot(file, content):
    """Bars of ratios, with the goals; returns why not where it cannot be done."""
    try:
        import matplotlib
    except ImportError:
        return "matplotlib is not installed"
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in content["rows"] if row["ratio"]][::-1]
    if not rows:
        return "no row has a ratio"
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.35 * len(rows)))
    places = range(len(rows))
    colours = {None: "tab:gray", True: "tab:green", False: "tab:orange"}
    bars = axes.barh(
        places, [row["ratio"] for row in rows], color=[colours[row["reached"]] for row in rows]
    )
    axes.bar_label(bars, [f"{row['ratio']:.2f}" for row in rows], padding=3)
    goals = [(row["goal"], place) for row, place in zip(rows, places) if row["goal"]]
    if goals:
        axes.scatter(*zip(*goals), marker="|", s=200, color="black", label="goal")
        axes.legend(loc="lower right")
    axes.set_yticks(places)
    axes.set_yticklabels(
        [f"{row['name']}, {row['threads']} thr., by {row['peer_name']}" for row in rows]
    )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("times as fast as the peer; of memory and halves: ours by the peer's")
    axes.set_title(f"{content['command']}\n{content['cpu']}", fontsize=9)
    figure.tight_layout()
    figure.savefig(file)
    return None
