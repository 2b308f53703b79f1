"""What a machine can run, before anything is started: versions, memory, places, who answers."""
