"""Wire contract between the services: event bodies, envelope, codec and subjects."""

from kinema_core.events.bodies import *
from kinema_core.events.body import *
from kinema_core.events.codec import *
from kinema_core.events.execution import *
from kinema_core.events.frozen import *
from kinema_core.events.objects import *
from kinema_core.events.plan import *
from kinema_core.events.subjects import *
