"""Results → a report: tables, figures and one page. No torch is needed to write it."""

from .comparison import write_comparison
from .compression import write_compression
from .read.overview import planned_overview, results_overview
from .read.published import Published, published, published_beside, published_notes
from .write import write_report

__all__ = [
    "Published",
    "planned_overview",
    "published",
    "published_beside",
    "published_notes",
    "results_overview",
    "write_comparison",
    "write_compression",
    "write_report",
]
