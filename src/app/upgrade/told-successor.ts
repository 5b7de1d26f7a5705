/**
 * A successor that counts as ready only after the service manager has been told that it is the main process now: a
 * manager that does not know it would end it together with the old one.
 */
import type { ServiceManager } from "../../base/service-manager.ts";
import type { FromSuccessor } from "./messages.ts";
import type { Successor, SuccessorEvents } from "./successor.ts";

export function tellingManager(
  manager: ServiceManager | undefined,
  events: SuccessorEvents,
  start: (events: SuccessorEvents) => Successor,
): Successor {
  if (manager === undefined) return start(events);
  const message = (said: FromSuccessor): void => {
    if (said.type !== "ready") {
      events.message(said);
      return;
    }
    manager.mainProcess(successor.pid).then(
      () => events.message(said),
      (error: Error) => events.message({ type: "failed", reason: `systemd was not told of it: ${error.message}` }),
    );
  };
  const successor = start({ ...events, message });
  return successor;
}
