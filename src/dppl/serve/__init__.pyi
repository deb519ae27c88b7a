from .models import open_model as open_model
from .server import Limits as Limits
from .server import application as application
from .server import listen as listen
from .server import serve as serve
