"""Runs moto's EC2 over HTTP, with what it leaves out of the documented API.

Usage: emulator.py PORT

Added to moto, each as the EC2 API reference describes it:
- RunInstances launches MaxCount machines, and is idempotent by ClientToken:
  IdempotentParameterMismatch, IdempotentInstanceTerminated.
- StartInstances and StopInstances refuse the wrong states:
  IncorrectInstanceState.
- A start sets the launch time.
- CreateTags refuses machines that do not exist: InvalidInstanceID.NotFound.
- A machine is pending, stopping and shutting-down for TRANSITION seconds.
"""

import copy
import json
import os
import sys
import threading

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.ec2.models.tags import TagBackend
from moto.ec2.responses.instances import InstanceResponse
from moto.server import main

TRANSITION = float(os.environ.get("TRANSITION", "0.2"))
CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
lock = threading.RLock()


def become(instance, first, then):
    """Puts the instance into a state now and into another a little later."""

    def put(state):
        instance._state.name = state
        instance._state.code = CODES[state]

    put(first)
    instance.transition = object()
    token = instance.transition

    def later():
        with lock:
            if instance.transition is token:
                put(then)

    timer = threading.Timer(TRANSITION, later)
    timer.daemon = True
    timer.start()


def refuse(instance, verb):
    raise EC2ClientError(
        "IncorrectInstanceState",
        "The instance '%s' is not in a state from which it can be %s." % (instance.id, verb),
    )


launched = {}  # by client token: what was asked for, and the reservation
respond = InstanceResponse.run_instances


def run_instances(self):
    with lock:
        token = self._get_param("ClientToken")
        print_ = json.dumps({k: v for k, v in sorted(self.data.items())}, default=str)
        if token in launched:
            earlier, reservation = launched[token]
            if earlier != print_:
                raise EC2ClientError(
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
                )
            if all(i._state.name in ("shutting-down", "terminated") for i in reservation.instances):
                raise EC2ClientError(
                    "IdempotentInstanceTerminated",
                    "The client token you have provided is associated with a terminated instance. Please use a different client token.",
                )
            return ActionResult(reservation)
        result = respond(self)
        reservation = result.result
        if token:
            launched[token] = (print_, reservation)
        for instance in reservation.instances:
            become(instance, "pending", "running")
        return result


InstanceResponse.run_instances = run_instances

describe = InstanceResponse.describe_instances


def describe_instances(self):
    # Not in the middle of a launch, when machines are what moto first takes them for: running.
    with lock:
        return describe(self)


InstanceResponse.describe_instances = describe_instances

get_param = InstanceResponse._get_param


def _get_param(self, name, if_none=None, **kwargs):
    # moto launches MinCount machines; EC2 launches as many as it can up to MaxCount.
    if name == "MinCount":
        name = "MaxCount"
    return get_param(self, name, if_none, **kwargs)


InstanceResponse._get_param = _get_param

start, stop, terminate = Instance.start, Instance.stop, Instance.terminate


def checked(verb, allowed, idle, transition, call):
    def method(self, *args, **kwargs):
        with lock:
            state = self._state.name
            if state in idle:
                return copy.copy(self._state)
            if state not in allowed:
                refuse(self, verb)
            previous = call(self, *args, **kwargs)
            become(self, *transition)
            return previous

    return method


def started(self, *args, **kwargs):
    self.launch_time = utcnow()
    return start(self, *args, **kwargs)


Instance.start = checked("started", ("stopped",), ("pending", "running"), ("pending", "running"), started)
Instance.stop = checked("stopped", ("running",), ("stopping", "stopped"), ("stopping", "stopped"), stop)
Instance.terminate = checked(
    "terminated", ("pending", "running", "stopping", "stopped"), ("shutting-down", "terminated"), ("shutting-down", "terminated"), terminate
)

# A call that names one wrong machine changes none of the others.
for name, verb, allowed in (
    ("start_instances", "started", ("stopped", "pending", "running")),
    ("stop_instances", "stopped", ("running", "stopping", "stopped")),
):

    def wrap(call, allowed, verb):
        def method(self, instance_ids):
            with lock:
                for instance in self.get_multi_instances_by_id(instance_ids):
                    if instance._state.name not in allowed:
                        refuse(instance, verb)
                return call(self, instance_ids)

        return method

    setattr(InstanceBackend, name, wrap(getattr(InstanceBackend, name), allowed, verb))

create_tags = TagBackend.create_tags


def checked_tags(self, resource_ids, tags):
    for resource in resource_ids:
        if resource.startswith("i-"):
            self.get_instance(resource)
    return create_tags(self, resource_ids, tags)


TagBackend.create_tags = checked_tags

main(["-H", "127.0.0.1", "-p", sys.argv[1]])
