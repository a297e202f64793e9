"""Small traces by the schemas that were published with the real ones, and their import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hocket.cluster.workloads import ImportedJobs, TraceRequest, import_trace
from hocket.cluster.workloads.trained_models import TABLE_III

DATA = Path(__file__).parents[5] / "shared" / "data"

TIRESIAS = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
b,2,30,100,vgg16,66,10
a,1,5,500,vgg16,118,25
c,1,40,100,vgg16,26,25
d,4,41,100,alexnet,40,1
e,8,42,50,alexnet,30,1
"""
SLURM = """JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|AllocTRES
12|a "x|u|COMPLETED|2026-01-31T10:00:10|2026-01-31T10:00:20|2026-01-31T10:10:20|600|gres/gpu:a100=2,gres/gpu=2
12.batch|batch||COMPLETED|2026-01-31T10:00:20|2026-01-31T10:00:20|2026-01-31T10:10:20|600|cpu=8,gres/gpu=2
12.extern|extern||COMPLETED|2026-01-31T10:00:20|2026-01-31T10:00:20|2026-01-31T10:10:20|600|cpu=8,gres/gpu=2
12.0|python||COMPLETED|2026-01-31T10:00:20|2026-01-31T10:00:20|2026-01-31T10:10:20|600|cpu=8,gres/gpu=2
11_3|array|u|CANCELLED by 1000|2026-01-31T09:00:00|2026-01-31T10:00:00|2026-01-31T10:01:00|60|gres/gpu:v100=1
11_[4-9]|array|u|CANCELLED by 1000|2026-01-31T09:00:00|None|2026-01-31T10:01:00|0|
13|cpu|u|COMPLETED|2026-01-31T09:30:00|2026-01-31T10:00:00|2026-01-31T10:01:00|60|cpu=4,mem=4G,node=1
14|late|u|RUNNING|2026-01-31T09:30:00|2026-01-31T10:00:00|Unknown|600|cpu=4,gres/gpu=1
15+0|het|u|FAILED|2026-01-31T11:00:00|2026-01-31T11:00:00|2026-01-31T11:00:50|50|cpu=4,gres/gpu=1,node=1
15+1|het|u|FAILED|2026-01-31T11:00:00|2026-01-31T11:00:00|2026-01-31T11:00:50|50|cpu=4,gres/gpu:a100=4,node=2
15+2|het|u|FAILED|2026-01-31T11:00:00|2026-01-31T11:00:00|2026-01-31T11:00:50|50|cpu=4,node=1
15+0.batch|batch||FAILED|2026-01-31T11:00:00|2026-01-31T11:00:00|2026-01-31T11:00:50|50|cpu=4,gres/gpu=1
16|again|u|NODE_FAIL|2026-01-31T12:00:00|2026-01-31T12:00:00|2026-01-31T12:10:00|600|cpu=4,gres/gpu=1
16|again|u|COMPLETED|2026-01-31T12:10:00|2026-01-31T12:20:00|2026-01-31T12:21:40|100|cpu=4,gres/gpu=1
17|never|u|CANCELLED by 1000|2026-01-31T12:10:00|Unknown|2026-01-31T12:21:40|0|
"""
GAVEL = (
    'ResNet-50 (batch size 64)\tpython3 main.py -a "x" -b 64\timages\t--num\t1\t2931\t1\t1\t-1.000000\t10\n'
    "LM (batch size 10)\tpython main.py --cuda\tlm\t--steps\t1\t7000\t4\t1\t-1.000000\t2.5\n"
    "A3C\tpython3 main.py\trl\t--max\t0\t88\t1\t1\t-1.000000\t20\n"
)
THROUGHPUTS: dict[str, Any] = {
    "v100": {
        "('ResNet-50 (batch size 64)', 1)": {"null": 4.0, "('A3C', 1)": [1.0, 2.0]},
        "('LM (batch size 10)', 1)": {"null": 80.0},
        "('A3C', 1)": {"null": 8},
    },
    "k80": {"('LM (batch size 10)', 1)": {"null": 24.7}, "('ResNet-50 (batch size 64)', 1)": {"null": 0.0}},
    "v100_unconsolidated": {},
}
PHILLY: list[dict[str, Any]] = [
    {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_2",
        "attempts": [
            {
                "start_time": "2017-10-07 01:12:00",
                "end_time": "2017-10-07 01:13:00",
                "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}],
            },
            {
                "start_time": "2017-10-07 01:20:00",
                "end_time": "2017-10-07 02:20:00",
                "detail": [{"ip": "m4", "gpus": ["gpu0", "gpu1"]}, {"ip": "m5", "gpus": ["gpu7"]}],
            },
            {"start_time": "2017-10-07 03:20:00", "end_time": None, "detail": []},
        ],
        "submitted_time": "2017-10-07 01:11:00",
        "user": "ce2f4c",
    },
    {"status": "Killed", "vc": "v", "jobid": "none", "attempts": [], "submitted_time": "None", "user": "u"},
    {
        "status": "Failed",
        "vc": "v",
        "jobid": "application_1",
        "attempts": [
            {
                "start_time": "2017-10-06 23:59:00",
                "end_time": "2017-10-07 00:00:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
            }
        ],
        "submitted_time": "2017-10-06 23:00:00",
        "user": "u",
    },
]
ALIBABA = """job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
j1,ps,1.0,Terminated,1000.0,2000.0,600.0,29.2,,CPU
j1,worker,3.0,Terminated,1010.0,1900.0,400.0,29.2,50.0,T4
j1,chief,1.0,Terminated,1005.0,2000.0,400.0,29.2,200.0,T4
j2,tensorflow,1.0,Failed,500.0,700.0,600.0,29.2,25.0,MISC
j3,worker,1.0,Running,900.0,,600.0,29.2,100.0,P100
j4,worker,1.0,Terminated,0.0,800.0,600.0,29.2,100.0,P100
"""
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
    """p1,6000,12288,1,460,,LS,Running,2000,9000,2500
p0,88000,327680,8,1000,T4,BE,Succeeded,1000,1600,1000
p2,4000,4096,0,0,,BE,Succeeded,1100,1600,1200
p3,4000,4096,2,1000,V100M16|V100M32,Burstable,Failed,1500,1700,1600
p4,4000,4096,1,1000,G2,BE,Pending,1500,1700,
p5,4000,4096,1,1000,,Guaranteed,Failed,1500,1700,1700
"""
)
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
2,u,v,8,64,1,COMPLETED,2020-06-10 00:00:10,2020-06-10 00:00:11,2020-06-10 00:10:11,600,1
1,u,v,1,1,1,FAILED,2020-06-09 23:59:40,2020-06-09 23:59:40,2020-06-10 00:00:40,60,0
3,u,v,0,16,1,COMPLETED,2020-06-10 00:00:12,2020-06-10 00:00:12,2020-06-10 00:10:11,600,0
4,u,v,4,16,1,CANCELLED,2020-06-10 00:00:12,2020-06-10 00:00:12,2020-06-10 00:00:12,0,0
"""
SMALL = {
    "tiresias": TIRESIAS,
    "gavel": GAVEL,
    "philly": json.dumps(PHILLY),
    "alibaba": ALIBABA,
    "alibaba-2023": PODS,
    "helios": HELIOS,
    "slurm": SLURM,
}
PARTS = {model.name: model.forward_s + model.backward_s for model in TABLE_III}


def imported(kind: str, path: Path, **options: Any) -> ImportedJobs:
    """The jobs of the trace at ``path``; options as TraceRequest has them."""
    return import_trace(kind, TraceRequest(path=path, **options))


def says(found: ImportedJobs, text: str) -> bool:
    """True if one of the notes has that text."""
    return any(text in note for note in found.notes)
