"""The command ``fastcos COMMAND``: one module per command, imported when the command is called.

``main`` builds the argument parser, runs the command, and turns exceptions into one line and an
exit status. A command module has ``DESCRIPTION``, ``EPILOG``, ``add_arguments(parser)`` and
``run(arguments)``, which returns the exit status. It reads files, calls the library and writes
files; it computes nothing itself.

::

    main  ->  compare, fit, neighbors, ...     one command: read, call fastcos, write, print
                |
              options        arguments that several commands share, and their conversion
              model_folder   the directory that ``fastcos fit`` writes
              results        files and tables of comparisons
                |
              terminal       messages, progress, tables, JSON

Data go to stdout and to files, messages and progress to stderr. Exit status: 0 fine, 1 the answer
is no, 2 bad input, 130 interrupted, 141 the reader of a pipe has closed it.
"""
