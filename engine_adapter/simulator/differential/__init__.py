"""The proof that our scheduler decides as vLLM's: both play the same random workloads in lockstep."""
