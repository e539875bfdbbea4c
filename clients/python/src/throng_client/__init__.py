"""A client of a service on Throng."""

from .client import Client, CommandOptions, Options
from .retry import Cancel, Cancelled, Deadline, Problem, Rejection, Unreachable
from .socket import Call, Socket

__all__ = [
    "Call", "Cancel", "Cancelled", "Client", "CommandOptions", "Deadline", "Options", "Problem", "Rejection", "Socket", "Unreachable",
]
