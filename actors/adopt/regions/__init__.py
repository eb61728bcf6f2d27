"""Parts of forwards that no module holds: forwards traced call by call, and split into regions."""
