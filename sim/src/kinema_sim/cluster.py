"""The simulated cluster: everything in one virtual time, put together."""

from kinema_sim.api.faults import Faults
from kinema_sim.api.kube import KubeApi
from kinema_sim.cloud.machines import Offer
from kinema_sim.cloud.provider import Cloud
from kinema_sim.controllers.budgets import BudgetController, QuotaController
from kinema_sim.controllers.cleanup import Cleanup
from kinema_sim.controllers.daemonset import DaemonSetController
from kinema_sim.controllers.deployment import DeploymentController
from kinema_sim.controllers.hpa import SYNC_MS, Autoscaler
from kinema_sim.controllers.job import JobController
from kinema_sim.controllers.kubelet import Kubelets
from kinema_sim.controllers.memory import OutOfMemory
from kinema_sim.controllers.replicaset import ReplicaSetController
from kinema_sim.controllers.resizing import Resizes
from kinema_sim.controllers.statefulset import StatefulSetController
from kinema_sim.engine.admission import Admission
from kinema_sim.engine.clock import EPOCH_MS, Loop
from kinema_sim.engine.store import Store
from kinema_sim.load.generator import IDLE_PERCENT, LoadGenerator
from kinema_sim.load.meter import SCRAPE_MS, Meter
from kinema_sim.load.model import Application
from kinema_sim.record import Recorder
from kinema_sim.scheduler.scheduler import Scheduler


class Cluster:
    """A cluster and its cloud.

    Args:
        seed: decides everything that is not given: names, uids, delays.
        apps: applications whose pods get load.
        offers: what the cloud sells, the shipped price list when None.
        window: how many changes per kind a watch can look back.
        recorded: keep samples and the life of every pod in `history`, which grows with time.
        metered: measure usage every 15 seconds, which horizontal autoscalers need.
        idle_percent: what pods without a load use of the CPU that they request.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        apps: tuple[Application, ...] = (),
        offers: tuple[Offer, ...] | None = None,
        window: int = 20_000,
        recorded: bool = True,
        metered: bool = True,
        idle_percent: int = IDLE_PERCENT,
    ) -> None:
        self.seed = seed
        self.loop = Loop(EPOCH_MS)
        self.store = Store(self.loop, seed, window=window)
        self.store.admit_with(Admission(self.store).admit)
        self.api = KubeApi(self.store)
        self.faults = Faults()
        self.cloud = Cloud(self.store, seed, offers=offers)
        self.scheduler = Scheduler(self.store)
        self.cleanup = Cleanup(self.store, self.api)
        self.kubelets = Kubelets(self.store, seed)
        self.replica_sets = ReplicaSetController(self.store, self.api)
        self.deployments = DeploymentController(self.store, self.api)
        self.stateful_sets = StatefulSetController(self.store, self.api)
        self.daemon_sets = DaemonSetController(self.store, self.api)
        self.jobs = JobController(self.store, self.api)
        self.budgets = BudgetController(self.store, self.api)
        self.quotas = QuotaController(self.store, self.api)
        self.store.admit_with(self.quotas.admit)
        self.load = LoadGenerator(self.store, apps, idle_percent=idle_percent)
        self.memory: OutOfMemory | None = None
        self.resizes: Resizes | None = None
        self.meter = Meter(self.store, self.load.usage)
        self.autoscaler = Autoscaler(self.store, self.api, self.meter)
        if recorded:
            self.history = Recorder(store=self.store, cloud=self.cloud, books=self.scheduler.books, load=self.load)
        if metered:
            self.loop.every(SCRAPE_MS, self.meter.scrape)
            # The scrape comes first at a common instant, so that the autoscalers see fresh figures.
            self.loop.every(SYNC_MS, self.autoscaler.sync_all, priority=1)

    def contend(self) -> None:
        """Let pods share the CPU of their node by their requests, and be killed where it has no memory for them."""
        self.load.contended = True
        self.memory = OutOfMemory(self.store, self.load, self.kubelets)

    def resize_in_place(self) -> None:
        """Let kubelets resize pods that run."""
        self.resizes = Resizes(self.store, self.seed)

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.loop.run_until(self.loop.now_ms + round(seconds * 1000))
