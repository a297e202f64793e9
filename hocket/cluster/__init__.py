"""Many jobs on one cluster: who computes where, who transfers when, and what that costs each."""
