"""The command ``fastcos COMMAND``, with one module per command.

``main`` builds the argument parser, runs the command, and converts exceptions into one line of text
and an exit status. The module of a command is imported only when the command is called. The module
defines ``DESCRIPTION``, ``EPILOG``, ``add_arguments(parser)`` and ``run(args)``, which returns the
exit status. A command reads files, calls the library and writes files; it computes nothing itself.

::

    main  ->  compare, fit, neighbors, ...     a command: read, call fastcos, write, print
                |
              options        arguments that several commands share, and their conversion
              model_folder   the directory that ``fastcos fit`` writes
              results        files and tables of comparisons
                |
              terminal       messages, progress, tables, JSON

Results are printed to stdout or written to files; messages and progress are printed to stderr. The
exit status is 0 for success, 1 if a check fails, 2 for bad input, 130 after an interrupt, and 141
if the program that reads the output has closed the pipe.
"""
