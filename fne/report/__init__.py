"""The pages: settings, results and examples of runs, comparisons and studies."""
