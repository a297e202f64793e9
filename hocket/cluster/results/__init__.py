"""Results of cluster runs: statistics, comparisons in pairs, sweeps and recordings."""
