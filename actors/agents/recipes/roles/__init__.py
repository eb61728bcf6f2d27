"""The rules of planner, coder, debugger and solo agent."""
