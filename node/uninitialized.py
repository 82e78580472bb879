"""A started node that is not yet part of a cluster: it is in the physical topology, and serves `/v1/init` until
`palisade init` commits.

It can prepare, commit or cancel a plan on request, and coordinate one. Its promises are on disk before it responds
(`topology/initialization.py` has the rules). When a plan is committed here, the node continues as a founding member.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from aiohttp import web

from palisade.api.http.aiohttp_fixes import fix
from palisade.api.http.authorization import AuthorizationGate
from palisade.api.http.fast_path import HttpLimits
from palisade.api.http.listener import runner_of
from palisade.api.http.problems import WHY_UNKNOWN, errors_as_answers, problem_response
from palisade.api.http.request_body import HTTP_LIMITS, read_json
from palisade.api.http.v1_keys import answer
from palisade.api.stream.uninitialized_port import UninitializedPort
from palisade.base.http_request import Answer, HttpRequests, NoAnswer
from palisade.node.authorization import authorizer_of, headers_of
from palisade.node.component_adapters import ServerPart, cause_of_failure
from palisade.node.config import InitialMember, NodeConfig
from palisade.node.data_dir import claim_data_dir, keep_participant, kept_participant, release_marker
from palisade.node.options import read_members
from palisade.raftgroup.errors import Unavailable
from palisade.recovery.lifecycle import Lifecycle, Part
from palisade.service.authorization.rows import UnavailablePermissionRows
from palisade.topology.initialization import (
    CancelOutcome,
    CommitInit,
    InitCancelled,
    InitPlan,
    InitRefused,
    InitState,
    Participant,
    Prepare,
    WaitInit,
    holding,
    next_step,
    outcome_in,
    outcome_of_cancel,
)
from palisade.topology.physical import PhysicalTopology
from palisade.topology.records import NodeRole
from palisade.topology.view import physical_view
from palisade.wire.error_codes import NotInitialized

log = logging.getLogger(__name__)

ASK_S = 3.0
COORDINATE_S = 15.0
ANSWER_PART = 0.8
"""A coordinator answers after this part of the command's timeout, so that the command still receives the reason."""
GO_ON_AFTER_S = 0.3
"""Grace period in which the response to the commit request is sent."""
BODY_BYTES_MAX = 64 * 1024
ATTEMPTS_MAX = 64


def config_of(config: NodeConfig) -> NodeConfig | None:
    """With the founding members of a committed initialization; None for a node that still waits for one."""
    if config.standalone or config.follow or config.initial_cluster or config.join:
        return config
    claim_data_dir(config.data_dir, cluster=config.cluster, node=config.id)
    kept = kept_participant(config.data_dir)
    if kept.state is InitState.COMMITTED and kept.plan is not None:
        return replace(config, initial_cluster=read_members(",".join(kept.plan.members)))
    return config if (config.data_dir / "raft").exists() else None


class UninitializedNode:
    """`wait` returns when a plan is committed here."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._own = str(InitialMember(config.id, config.peer, config.http, config.stream))
        self._participant = kept_participant(config.data_dir)
        self._physical = PhysicalTopology(config.own_node(), NodeRole.VOTER, member=self._own)
        self._committed = asyncio.Event()
        self._held: dict[tuple[str, str], set[str]] = {}
        """The participants that the coordinators of one attempt have seen holding its plan."""
        self._cancelled: InitPlan | None = None
        """The last plan cancelled here: the addresses for a repeated cancel, also of nodes that do not answer."""
        gate = AuthorizationGate(authorizer_of(config, UnavailablePermissionRows()))
        app = web.Application(middlewares=[errors_as_answers, gate.guard, _refusals], client_max_size=BODY_BYTES_MAX)
        app[HTTP_LIMITS] = HttpLimits(body_bytes_max=BODY_BYTES_MAX)
        app[WHY_UNKNOWN] = NotInitialized(f"{config.id} waits to be initialized: see 'palisade init --help'")
        app.add_routes(
            [
                web.get("/livez", self._live, allow_head=False),
                web.get("/readyz", self._ready, allow_head=False),
                web.get("/v1/topology", self._topology, allow_head=False),
                web.get("/v1/init", self._state, allow_head=False),
                web.post("/v1/init/{step}", self._step),
                web.post("/v1/cluster/init", self._initialize),
            ]
        )
        self._runner = runner_of(app, close_s=1.0)
        http = Part("http", ServerPart(_Site(self._runner), config.http))
        stream = Part("stream", ServerPart(UninitializedPort(config.advertised()), config.stream))
        self._life = Lifecycle([Part("physical", self._physical), stream, http])

    async def start(self) -> None:
        """Raises OSError if a port cannot be bound."""
        with cause_of_failure():
            await self._life.start()
        log.info("not initialized, see palisade init --help: node=%s http=%s", self._config.id, self._config.http)

    async def wait(self) -> None:
        await self._committed.wait()
        await asyncio.sleep(GO_ON_AFTER_S)

    async def stop(self) -> None:
        """The folder of a node that holds no plan is free afterwards: its --cluster may have been wrong."""
        with contextlib.suppress(Exception):
            await self._life.stop()
        if self._participant.plan is None:
            release_marker(self._config.data_dir)

    # Participant.

    def _become(self, participant: Participant) -> None:
        if participant != self._participant:
            keep_participant(self._config.data_dir, participant)
            if participant.plan is None:
                self._cancelled = self._participant.plan
            self._participant = participant
            log.info("initialization changed: node=%s state=%s", self._config.id, participant.state.value)
        if participant.state is InitState.COMMITTED:
            self._committed.set()

    async def _state(self, request: web.Request) -> web.Response:
        return answer(self._participant.to_json())

    async def _step(self, request: web.Request) -> web.Response:
        plan = _plan_of(await read_json(request), self._config.cluster)
        step = request.match_info["step"]
        if step == "prepare":
            self._become(self._participant.prepare(plan, self._own))
        elif step == "commit":
            self._become(self._participant.commit(plan.id))
        elif step == "cancel":
            before = self._participant
            self._become(before.cancel(plan.id))
            return answer({**self._participant.to_json(), "outcome": outcome_of_cancel(before, self._participant)})
        else:
            raise web.HTTPNotFound
        return answer(self._participant.to_json())

    # Coordinator.

    async def _initialize(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        names = body.get("members") if isinstance(body, dict) else None
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InitRefused('the body must name the members, such as {"members": ["n1", "n2", "n3"]}')
        if len(set(names)) < len(names):
            raise InitRefused(f"a node is named twice in {', '.join(names)}: name each one once")
        plan = self._plan_for(names, cancel=bool(body.get("cancel")))
        limit_s = _coordinate_s(body)
        async with HttpRequests(headers_of(self._config), timeout_s=min(ASK_S, limit_s)) as requests:
            held = self._held_in(str(body.get("attempt") or "")[:64], plan)
            coordinator = _Coordinator(plan, self._config.id, requests, held)
            if body.get("cancel"):
                outcomes = await coordinator.cancel()
                cancelled = CancelOutcome.NO_ANSWER not in outcomes.values()
                return answer({"cancelled": cancelled, "members": list(plan.names), "nodes": outcomes})
            try:
                async with asyncio.timeout(limit_s):
                    await coordinator.run()
            except TimeoutError:
                raise Unavailable(
                    f"{coordinator.trouble}; the cluster of {', '.join(plan.names)} is not initialized yet: retry when "
                    "they answer, or cancel it (palisade init --cancel)"
                ) from None
        addresses = {each.id: each.addresses() for each in read_members(",".join(plan.members))}
        return answer({"initialized": True, "members": list(plan.names), "addresses": addresses})

    def _held_in(self, attempt: str, plan: InitPlan) -> set[str]:
        """`attempt` is in each request of one command: a repeated request does not undo a cancel in between."""
        if not attempt:
            return set()
        if len(self._held) >= ATTEMPTS_MAX:
            self._held.clear()
        return self._held.setdefault((attempt, plan.id), set())

    def _plan_for(self, names: list[str], *, cancel: bool) -> InitPlan:
        """From the states that the named nodes announce in the physical topology. With `cancel`, also from the last
        states of nodes that do not answer."""
        held = self._participant.plan
        if held is not None and sorted(held.names) == sorted(set(names)):
            return held
        known = self._members(cancel=cancel)
        missing = sorted(name for name in set(names) if not known.get(name))
        if missing and cancel:
            raise InitRefused(
                f"the addresses of {', '.join(missing)} are not known here, so nothing was cancelled: repeat the "
                "command when all of the nodes run, or at a node that has prepared the initialization"
            )
        if missing:
            own = self._config.id
            raise Unavailable(
                f"{own} does not see {', '.join(missing)} among the nodes that wait to be initialized: correct the "
                f"names, or start the nodes with --seeds that lead to {own}; 'palisade topology --at "
                f"{self._config.advertised()['http']}' lists the nodes that it sees"
            )
        return InitPlan(self._config.cluster, tuple(sorted(str(known[name]) for name in set(names))))

    def _members(self, *, cancel: bool) -> dict[str, str | None]:
        """Name -> member as in a plan. With `cancel`: also of nodes that do not answer."""
        records = self._physical.records()
        live = {each.name: each.tag("member") for each in records if each.is_live}
        if not cancel:
            return live
        silent = {each.name: each.tag("member") for each in records}
        earlier = self._cancelled
        return silent | (dict(zip(earlier.names, earlier.members, strict=True)) if earlier else {}) | live

    async def _live(self, request: web.Request) -> web.Response:
        return answer({"live": True})

    async def _ready(self, request: web.Request) -> web.Response:
        return answer(
            {"ready": False, "reasons": [f"waiting to be initialized ({self._participant.state.value})"]}, 503
        )

    async def _topology(self, request: web.Request) -> web.Response:
        physical = physical_view(self._physical.records())
        return answer({"physical": physical, "logical": [], "version": 0, "strangers": self._physical.socket.strangers})


class _Coordinator:
    """Executes step after step until none is left. This node is asked like every other one, but last. `held`: the
    participants that this coordinator, or an earlier one of the same command, has seen holding the plan."""

    def __init__(self, plan: InitPlan, own: str, requests: HttpRequests, held: set[str]) -> None:
        self._plan = plan
        self._held = held
        self._requests = requests
        members = read_members(",".join(plan.members))
        ordered = sorted(members, key=lambda member: member.id == own)
        self._http = {member.id: str(member.http) for member in ordered}
        self._unanswered: dict[str, str] = {}
        """Why nodes have not answered their last request."""

    async def run(self) -> None:
        """Raises InitRefused, also when it is cancelled meanwhile; TimeoutError if a node does not respond in time."""
        prepared: list[str] = []
        while True:
            states = await self._states()
            step = next_step(self._plan, states, self._held)
            self._held |= holding(self._plan, states)
            if isinstance(step, InitCancelled):
                await self._cancel_at(prepared)  # by the step before, at the moment of the cancel or after it
                raise InitRefused(
                    f"the initialization was cancelled at {', '.join(step.names)}: run palisade init again"
                )
            prepared = []
            if isinstance(step, Prepare):
                prepared = await self._post_to(step.names, "prepare")
            elif isinstance(step, CommitInit):
                await self._post_to(step.names, "commit")
            elif isinstance(step, WaitInit):
                log.info("initialization waits: nodes=%s", ",".join(step.names))
                await asyncio.sleep(0.5)
            else:
                return

    @property
    def trouble(self) -> str:
        """Why it is not done yet."""
        silent = [f"{name} at {self._http[name]} ({why})" for name, why in self._unanswered.items()]
        return f"no answer from {', '.join(silent)}" if silent else "the nodes have not completed it in time"

    async def _request(self, name: str, path: str, method: str = "GET", body: Any = None) -> Answer:
        """Raises NoAnswer."""
        self._unanswered.setdefault(name, "no answer yet")
        try:
            answer = await self._requests.json(self._http[name], path, method, body)
        except NoAnswer as error:
            self._unanswered[name] = error.reason
            raise
        del self._unanswered[name]
        return answer

    async def cancel(self) -> dict[str, CancelOutcome]:
        """What happened at each participant. Raises InitRefused if one has committed."""
        return await self._cancel_at(self._http)

    async def _cancel_at(self, names: Iterable[str]) -> dict[str, CancelOutcome]:
        outcomes = {}
        for name in names:
            found = await self._post(name, "cancel")
            outcomes[name] = CancelOutcome.NO_ANSWER if found is None else outcome_in(found)
        return dict(sorted(outcomes.items()))

    async def _post_to(self, names: Collection[str], verb: str) -> list[str]:
        """Returns the participants that have answered; they hold the plan."""
        answered = []
        for name in self._http:
            if name in names and await self._post(name, verb) is not None:
                answered.append(name)
                self._held.add(name)
        return answered

    async def _states(self) -> dict[str, Participant | None]:
        return {name: await self._ask(name) for name in self._http}

    async def _ask(self, name: str) -> Participant | None:
        try:
            return Participant.from_json((await self._request(name, "/v1/init")).content)
        except (NoAnswer, ValueError, KeyError, TypeError):
            return None

    async def _post(self, name: str, verb: str) -> dict[str, Any] | None:
        """The response; None without one. Raises InitRefused if the participant rejects the request."""
        try:
            answer = await self._request(name, f"/v1/init/{verb}", "POST", self._plan.to_json())
        except NoAnswer as error:
            log.warning("initialization request failed: node=%s request=%s reason=%s", name, verb, error.reason)
            return None
        if answer.status == 409:
            raise InitRefused(f"{name}: {answer.detail}")
        return answer.content if answer.status == 200 and isinstance(answer.content, dict) else None


class _Site:
    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner

    async def start(self, host: str, port: int) -> None:
        await self._runner.setup()
        fix(self._runner.server)
        await web.TCPSite(self._runner, host, port).start()

    async def close(self) -> None:
        await self._runner.cleanup()


@web.middleware
async def _refusals(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
        return response
    except InitRefused as error:
        return problem_response(
            409, "init-refused", "The cluster cannot be initialized like this", str(error), retry=False
        )


def _coordinate_s(body: dict[str, Any]) -> float:
    """Of a request with `timeout_ms`, the remaining time of its sender; at most COORDINATE_S."""
    given = body.get("timeout_ms")
    return min(COORDINATE_S, ANSWER_PART * given / 1000) if type(given) is int and given > 0 else COORDINATE_S


def _plan_of(body: Any, cluster: str) -> InitPlan:
    try:
        plan = InitPlan.from_json(body)
    except ValueError as error:
        raise InitRefused(str(error)) from None
    if plan.cluster != cluster:
        raise InitRefused(f"this node is of cluster {cluster}, but the plan is for {plan.cluster}: correct --cluster")
    return plan
