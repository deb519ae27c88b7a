from .card import model_card as model_card
from .report import Report as Report
from .report import make_report as make_report
