"""A client of a service on Throng."""

from .client import Client
from .retry import Cancel, Cancelled, Deadline, Problem, Rejection, Unreachable
from .socket import Call, Socket

__all__ = ["Call", "Cancel", "Cancelled", "Client", "Deadline", "Problem", "Rejection", "Socket", "Unreachable"]
