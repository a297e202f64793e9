"""All commands: the line that lists each, and the function that it is, loaded when it is named."""

from __future__ import annotations

from hocket.cli.command_help import CommandGroup, NamedCommand

TRAIN, PREDICT = "Train faster", "Predict before you rent"
SHARE, STUDY, MORE = "Share a cluster", "Study the algorithms", "Traces and pages"

COMMANDS: dict[str, tuple[NamedCommand | CommandGroup, ...]] = {
    TRAIN: (
        NamedCommand(
            "doctor",
            "commands.doctor_command:doctor",
            "Examine this machine or job: whether it can train, what to mend",
        ),
        NamedCommand(
            "train",
            "commands.train_command:train",
            "Train on several processes: torchrun, told how to plan",
            cls="Train",
        ),
        NamedCommand("plan", "commands.plan_command:plan", "Plan what is transferred in which order"),
        NamedCommand(
            "tune",
            "commands.tune_command:tune",
            "Rank every policy on your step, search on, write the best plan",
        ),
        NamedCommand(
            "compare",
            "commands.compare_command:compare",
            "Compare a predicted timeline with a measured one",
        ),
    ),
    PREDICT: (
        NamedCommand(
            "profile",
            "commands.profile_command:profile",
            "Measure one worker's step, or derive it for a device",
        ),
        NamedCommand(
            "predict",
            "commands.predict_command:predict",
            "Predict throughput for any number of workers",
        ),
        NamedCommand(
            "rent",
            "commands.rent_command:rent",
            "Compare offers for a job: hours, cost, numbers of nodes",
        ),
        NamedCommand(
            "simulate",
            "commands.simulate_command:simulate",
            "Simulate steps under one policy or plan",
        ),
        CommandGroup(
            name="network",
            short_help="Measure the network that steps are planned for",
            help="Measure the network that steps are planned for.",
            commands=[NamedCommand("measure", "commands.network_command:measure")],
        ),
    ),
    SHARE: (
        CommandGroup(
            name="cluster",
            short_help="Many jobs on one cluster, simulated or run",
            help="Many jobs on one cluster: which GPUs each gets, and who computes and transfers when.",
            commands=[
                NamedCommand("run", "cluster.live_commands:run"),
                NamedCommand("serve", "cluster.live_commands:serve"),
                NamedCommand("submit", "cluster.client_commands:submit"),
                NamedCommand("status", "cluster.client_commands:status"),
                NamedCommand("why", "cluster.history_commands:why"),
                NamedCommand("logs", "cluster.history_commands:logs"),
                NamedCommand("events", "cluster.history_commands:events"),
                NamedCommand("cancel", "cluster.client_commands:cancel"),
                NamedCommand("drain", "cluster.client_commands:drain"),
                NamedCommand("salvage", "cluster.salvage_command:salvage"),
                NamedCommand("simulate", "cluster.cluster_simulate_command:simulate"),
                NamedCommand("generate", "cluster.job_set_commands:generate"),
                NamedCommand("import", "cluster.job_set_commands:import_"),
                NamedCommand("sweep", "cluster.sweep_command:sweep"),
            ],
        ),
    ),
    STUDY: (
        NamedCommand("demo", "commands.demo_command:demo", "The whole flow on a real model, measured here"),
        NamedCommand(
            "reproduce",
            "commands.reproduce_command:reproduce",
            "The papers' tables and figures, made again",
        ),
        NamedCommand("models", "commands.models_command:models", "The networks that can be named"),
        CommandGroup(
            name="bench",
            short_help="Time training, planners and the simulator",
            help="Time training, planners and the simulator.",
            commands=[
                NamedCommand("train", "bench.bench_train_command:train"),
                NamedCommand("shard", "bench.bench_shard_command:shard"),
                NamedCommand("plan", "bench.speed_commands:plan"),
                NamedCommand("sim", "bench.speed_commands:sim"),
                NamedCommand("predict", "bench.replay_commands:predict"),
                NamedCommand("orders", "bench.replay_commands:orders"),
            ],
        ),
        CommandGroup(
            name="lab",
            short_help="An emulated cluster on this machine (Linux, root)",
            help="An emulated cluster on this machine: nodes on links of a given rate."
            " Linux, root and iproute2.",
            commands=[
                NamedCommand("up", "commands.lab_command:up"),
                NamedCommand("down", "commands.lab_command:down"),
                NamedCommand("status", "commands.lab_command:status"),
                NamedCommand("exec", "commands.lab_command:execute"),
            ],
        ),
    ),
    MORE: (
        NamedCommand(
            "diagnose",
            "commands.diagnose_command:diagnose",
            "A traced job: where time goes, what plans gain",
        ),
        NamedCommand("report", "commands.report_command:report", "Results on one HTML page"),
        CommandGroup(
            name="import",
            short_help="Steps from traces of PyTorch and Chakra",
            help="Steps from what other tools recorded.",
            commands=[
                NamedCommand("kineto", "commands.interop_commands:import_kineto"),
                NamedCommand("chakra", "commands.interop_commands:import_chakra"),
            ],
        ),
        CommandGroup(
            name="export",
            short_help="Steps and timelines for other tools",
            help="Steps and timelines for other tools.",
            commands=[
                NamedCommand("chakra", "commands.interop_commands:export_chakra"),
                NamedCommand("perfetto", "commands.interop_commands:export_perfetto"),
            ],
        ),
    ),
}
"""Commands by the panel that lists them."""
