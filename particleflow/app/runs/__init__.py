"""Runs and their folders: scenario and trajectory, with summary, figures, movie and page beside them.

driver           runs a planned run in a folder and makes its products; all entry points call it
run_scenario     `particleflow.run`
run_folder       makes folders, freezes scenarios, opens runs; folder_contents reads run folders, without JAX
run_inputs       copies what a scenario reads from files into the folder of its run
run_outputs      makes the products; drawing_process draws figures and movie in other processes
comparison       two runs side by side
"""
