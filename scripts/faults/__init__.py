"""Parts of chaos runs: cheap work, a faulty network, machines, fault injection, ledgers."""
