"""The supervised processes: specs, starts, deaths, restarts, orphans."""
