from unem.classmodels import Dirichlet, Gaussian
from unem.gem import gem
from unem.schedule import Schedule
from unem.task import Task
