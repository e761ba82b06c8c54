"""A load and consistency harness: ``queuey bench``.

A *workload* is a file. A *driver* speaks to one system. The *generator* sends and receives by the workload and writes
down what happened; the *judge* reads that and says what was lost, repeated or out of order; the *verdict* says whether
the figures may be believed at all.

Nothing is decided while the load runs: the processes of the generator only write records, in files of fixed-size rows,
and everything else is worked out of these files afterwards.
"""
