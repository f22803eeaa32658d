"""Snakemake executor plugin for Slotwise: `snakemake --executor slotwise`.

Each job of the workflow is a job of the service. The service is asked after all active jobs with one request. If the service restarts,
the workflow waits for it: jobs go on meanwhile, and a submission that is repeated has the same key, so the job runs once.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from slotwise.errors import SlotwiseError
from slotwise.live.client import PIECE, Client, Job
from slotwise.live.patience import patiently
from slotwise.live.transport import ServiceError
from snakemake_executor_plugin_slotwise.demands import options_of

SECONDS_BETWEEN_CHECKS = 1  # a check is one request for all jobs, so Snakemake's 10 s are not needed
# Of the caller's environment: where the programs of the workflow are found. Other variables are declared with `envvars:`.
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_EXE")


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Options of the command line, such as --slotwise-server. Snakemake reads the annotations: `str | None` is refused."""

    server: Optional[str] = field(  # noqa: UP045
        default=None,
        metadata={"help": "URL of the service (default: SLOTWISE_SERVER, then the service on this machine)"},
    )
    profile: Optional[str] = field(  # noqa: UP045
        default=None, metadata={"help": "server and token from ~/.config/slotwise/profiles.toml"}
    )
    on_loss: str = field(
        default="fail",
        metadata={"help": "if the server of a job is lost: fail, or requeue (the job is executed again)"},
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=False,
)


class Executor(RemoteExecutor):
    """Jobs of Snakemake as jobs of the service."""

    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings
        if settings.on_loss not in ("fail", "requeue"):
            raise WorkflowError(f"--slotwise-on-loss: {settings.on_loss!r} is not one of: fail, requeue")
        try:
            self.client = Client(settings.server, profile=settings.profile)
            self.client.call("GET", "/v1/jobs/counts")
        except SlotwiseError as error:
            raise WorkflowError(str(error)) from None
        self.run = uuid.uuid4().hex
        self.number = 0
        self.is_away = False
        self.next_seconds_between_status_checks = min(
            SECONDS_BETWEEN_CHECKS, self.workflow.remote_execution_settings.seconds_between_status_checks
        )

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job."""
        self.number += 1
        options: dict[str, Any] = options_of(job.threads, job.resources) | {
            "env": {name: os.environ[name] for name in PASSED_ON if name in os.environ},
            "cwd": os.getcwd(),
            "name": self.get_jobname(job),
            "labels": {"snakemake": self.run},
            "on_loss": self.workflow.executor_settings.on_loss,
            "key": f"snakemake-{self.run}-{self.number}",
        }
        argv = ["/bin/sh", "-c", self.format_job_exec(job)]
        try:
            handle = patiently(lambda: self.client.submit(argv, **options), self.tell_away)
        except SlotwiseError as error:
            raise WorkflowError(f"job {job.jobid} ({options['name']}): {error}") from None
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=str(handle.id)))

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended; yield the other ones."""
        async with self.status_rate_limiter:
            try:
                found = await asyncio.to_thread(self.states, [int(one.external_jobid) for one in active_jobs])
            except ServiceError as error:
                if not error.passing:
                    raise
                self.tell_away(error)
                for one in active_jobs:
                    yield one
                return
        self.is_away = False
        for one in active_jobs:
            job = found.get(int(one.external_jobid))
            if job is not None and not job.has_ended:
                yield one
            elif job is not None and job.state == "done":
                self.report_job_success(one)
            else:
                self.report_job_error(one, msg=why(int(one.external_jobid), job))

    def states(self, numbers: list[int]) -> dict[int, Job]:
        """Return the jobs with these numbers."""
        pieces = [numbers[at : at + PIECE] for at in range(0, len(numbers), PIECE)]
        return {job.id: job for piece in pieces for job in self.client.jobs(id=piece)}

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel jobs that wait or run. Jobs that have ended meanwhile are left alone."""
        if not active_jobs:
            return
        numbers = [int(one.external_jobid) for one in active_jobs]
        try:
            self.client.call("POST", "/v1/jobs/cancel", json={"ids": numbers})
        except SlotwiseError as error:
            self.logger.error(f"jobs {', '.join(map(str, numbers))} of Slotwise may go on: {error}")

    def tell_away(self, error: ServiceError) -> None:
        """Tell once that the service does not answer."""
        if not self.is_away:
            self.logger.warning(f"{error}; waiting for it")
        self.is_away = True


def why(number: int, job: Job | None) -> str:
    """Return why a job did not complete, and where its output is."""
    if job is None:
        return f"Slotwise does not know job {number} any more. "
    how = f", exit code {job.exit_code}" if job.exit_code is not None else ""
    reason = f": {job.reason}" if job.reason else ""
    return f"Slotwise job {number} {job.state}{how}{reason}; `slotwise logs {number}` prints its output. "
