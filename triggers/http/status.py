"""The HTTP status of every error of ours."""

from __future__ import annotations

from state import errors
from state.errors import NightjarError

STATUS: dict[type[NightjarError], int] = {
    errors.Malformed: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.BudgetExhausted: 409,
    errors.Damaged: 409,
    errors.TooSlow: 408,
    errors.TooLarge: 413,
    errors.UnsupportedMedia: 415,
    errors.Invalid: 422,
    errors.TooManyRequests: 429,
    errors.Exhausted: 503,
    errors.Unavailable: 503,
}
"""Every error of the tree has its status here; a test asserts it."""
