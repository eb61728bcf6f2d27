"""What `make bench` runs; each file prints one table and names the machine it ran on."""
