"""``hocket bench``: training, planners and the simulator by the clock."""

from __future__ import annotations

from hocket.cli.bench import bench_train_command, replay_commands, speed_commands
from hocket.cli.command_help import App

app = App(help="Time training, planners and the simulator.")

for timed in (
    bench_train_command.train,
    speed_commands.plan,
    speed_commands.sim,
    replay_commands.predict,
    replay_commands.orders,
):
    app.command()(timed)
