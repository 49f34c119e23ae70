"""Runs and their folders: scenario and trajectory, with summary, figures, movie and page beside them.

driver           a planned run and a folder in, trajectory and products out: the way of every run
run_scenario     `particleflow.run`
run_folder       folders made, frozen scenarios, runs opened; folder_contents reads what lies there, without JAX
run_outputs      the products; drawing_process draws the pictures beside them
comparison       two runs side by side
"""
