"""`fedres bandit`."""

import json as json_
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedres.cli import table_options as shared

if TYPE_CHECKING:
    from fedres.bandits.policies import Policy
    from fedres.simulation.intervals import Interval


# The options of each way to use the command.
EVALUATE = {"log", "evaluate", "policy", "json"}
WRITE_LOG = {"write_log", "data", "clients", "rounds", "permute"}
TABLE = {"client", "action", "reward", "offers", "categorical", "local", "global_", "ignore"}
PANEL = shared.PANEL


def bandit(
    context: typer.Context,
    data: Annotated[str, typer.Option(help="A data set by name, or synthetic.")] = "digits",
    policy: Annotated[
        str, typer.Option(help="Of epsilon-greedy, squarecb, softmax, greedy, linucb; with commas.")
    ] = "epsilon-greedy,squarecb,softmax",
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 50,
    delay: Annotated[int, typer.Option(help="Round-trip delay of messages in rounds.")] = 20,
    reward_delay: Annotated[int, typer.Option(help="Delay of rewards in rounds.")] = 5,
    rounds: Annotated[int, typer.Option(help="Decisions that each client makes.")] = 1000,
    seeds: Annotated[int, typer.Option(help="Environments to average over.")] = 10,
    permute: Annotated[
        bool, typer.Option(help="Whether clients differ: in labels, or (synthetic) in taste.")
    ] = True,
    explore_every: Annotated[
        str | None,
        typer.Option(help="epsilon-greedy explores once in so many rounds, or theory (Theorem 3)."),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(help="A table of your own instead of --data.", rich_help_panel=PANEL),
    ] = None,
    client: Annotated[str | None, shared.CLIENT] = None,
    action: Annotated[
        str | None,
        typer.Option(help="Column that names what was shown, rated, ...", rich_help_panel=PANEL),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(
            help="Column that says what it brought, or a condition such as 'rating>=4'.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    offers: Annotated[
        int,
        typer.Option(
            help="How many of a client's own rows a decision offers.", rich_help_panel=PANEL
        ),
    ] = 10,
    categorical: Annotated[str | None, shared.CATEGORICAL] = None,
    local: Annotated[str | None, shared.LOCAL] = None,
    global_: Annotated[str | None, shared.GLOBAL] = None,
    ignore: Annotated[str | None, shared.IGNORE] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the report here (default: bandit.html).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Cores to use (default: all).")] = None,
    log: Annotated[Path | None, typer.Option(help="Logged decisions, for --evaluate.")] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Estimate what policies would earn on --log.")
    ] = False,
    write_log: Annotated[
        Path | None, typer.Option(help="Only write a log of simulated decisions, to try that.")
    ] = None,
) -> None:
    """Let clients decide and learn from late rewards: does personal + shared earn more?

    Example: fedres bandit --data letter --policy squarecb,greedy --report letter.html

    Your own: fedres bandit --table ratings.csv --client user_id --action item_id
    --reward 'rating>=4' --ignore timestamp

    Offline: fedres bandit --data synthetic --write-log events.jsonl, then
    fedres bandit --log events.jsonl --evaluate
    """
    from fedres.bandits.by_name import choose_policies

    names = policy.split(",")
    if (log is not None) != evaluate:
        raise ValueError("--log and --evaluate go together: give both, or none to simulate")
    if log is not None:
        others = {*context.params} - EVALUATE
        _refuse_given(context, others, "--evaluate takes what it needs from --log: leave {} out")
        _evaluate(log, choose_policies(names), json)
        return
    if write_log is not None:
        others = {*context.params} - WRITE_LOG
        _refuse_given(context, others, "--write-log only writes a log: leave {} out")
        _write_log(data, clients, rounds, permute, write_log)
        return
    if report is None and not json:
        report = Path("bandit.html")
    if report is not None:
        shared.refuse_unwritable(report)

    from fedres.bandits.study import study

    source: Any = data
    again = None
    if table is not None:
        from fedres.cli.replay_table import ReplayColumns

        _refuse_given(context, {"data", "permute"}, "--table is a world of its own: leave {} out")
        columns = ReplayColumns(table, client, action, reward, categorical, local, global_, ignore)
        source = shared.short_name(table), columns.world(offers, json)
        again = columns.as_options(offers)
    else:
        _refuse_given(context, TABLE, "{} is for --table: give that, too")
    result = study(
        source,
        names,
        clients=clients,
        delay=delay,
        reward_delay=reward_delay,
        rounds=rounds,
        seeds=seeds,
        differ=permute,
        explore_every=explore_every,
        n_jobs=jobs,
        progress=True,
    )
    from fedres.report.bandit_page import print_study, write_study

    if json:
        print(json_.dumps(result.to_dict(), indent=2))
    else:
        print_study(result)
    if report is not None:
        write_study(result, report, again)
        if not json:
            print(f"Report: {report.resolve()}")


def _refuse_given(context: typer.Context, names: Container[str], why: str) -> None:
    """An option that would be passed over is an error."""
    given = [
        f"--{name.rstrip('_').replace('_', '-')}"
        for name in context.params
        if name in names
        and (source := context.get_parameter_source(name))
        and source.name != "DEFAULT"
    ]
    if given:
        raise ValueError(why.format(", ".join(given)))


def _evaluate(log: Path, policies: "dict[str, Policy]", json: bool) -> None:
    from itertools import product

    from fedres.bandits.learners import step_for
    from fedres.bandits.logs import read_events
    from fedres.bandits.targets import evaluate_log
    from fedres.simulation.parallel import with_bar, working
    from fedres.simulation.settings import SGD_METHODS

    with working(f"reading {log}"):
        events = list(read_events(log))
    if not events:
        raise ValueError(f"{log} has no events: log some decisions first")
    cells = list(product(policies, SGD_METHODS))
    found = {
        (name, method): evaluate_log(events, policies[name], method, step_for(policies[name]))
        for name, method in with_bar(cells, len(cells), "replaying")
    }
    if not json:
        from fedres.report.bandit_page import print_evaluations

        print_evaluations(log, found)
        return
    first = found[cells[0]]
    counts = {name: getattr(first, name) for name in ("events", "left_out", "clients")}
    facts = {"log": str(log), **counts}
    results = [
        {
            "policy": name,
            "method": method,
            **{kind: _plain(getattr(result, kind)) for kind in ("ips", "snips", "dr")},
            "effective": result.effective,
            "mean_weight": result.mean_weight,
            "refusal": result.refusal,
        }
        for (name, method), result in found.items()
    ]
    print(json_.dumps({**facts, "logged": _plain(first.logged), "results": results}, indent=2))


def _plain(value: "Interval") -> dict[str, float | None]:
    from fedres.simulation.intervals import or_none

    return {"mean": or_none(value.mean), "half": or_none(value.half)}


def _write_log(data: str, clients: int, rounds: int, differ: bool, path: Path) -> None:
    from itertools import islice

    from fedres.bandits.by_name import LOGGED, LOGGER, environments
    from fedres.bandits.logs import EventLog
    from fedres.bandits.run_log import events_of
    from fedres.bandits.simulator import simulate_bandit
    from fedres.simulation.parallel import working

    if path.exists():
        raise ValueError(f"{path} exists: give the log another name")
    with working(f"writing {path}"):
        rounds = min(rounds, -(-LOGGED // max(clients, 1)))
        world = environments(data, differ)(clients, 0)
        run = simulate_bandit(world, LOGGER, rounds=rounds, keep_decisions=True)
        with EventLog(path) as log:
            for event in islice(events_of(run), LOGGED):
                log(event)
    print(f"{min(run.decisions, LOGGED):,} decisions of {LOGGER}, which learned by FedRes: {path}")
