/**
 * Maps A2A method names to one canonical name, that of protocol 0.3. Protocol 1.0 renamed the methods, so a rule about
 * `tasks/cancel` must also apply to `CancelTask`.
 */
import { foldCase } from "../json/syntax.ts";

const OTHER_NAMES: Readonly<Record<string, string>> = {
  SendMessage: "message/send",
  SendStreamingMessage: "message/stream",
  GetTask: "tasks/get",
  ListTasks: "tasks/list",
  CancelTask: "tasks/cancel",
  SubscribeToTask: "tasks/resubscribe",
  TaskSubscription: "tasks/resubscribe",
  CreateTaskPushNotificationConfig: "tasks/pushNotificationConfig/set",
  SetTaskPushNotificationConfig: "tasks/pushNotificationConfig/set",
  GetTaskPushNotificationConfig: "tasks/pushNotificationConfig/get",
  ListTaskPushNotificationConfig: "tasks/pushNotificationConfig/list",
  ListTaskPushNotificationConfigs: "tasks/pushNotificationConfig/list",
  DeleteTaskPushNotificationConfig: "tasks/pushNotificationConfig/delete",
  GetExtendedAgentCard: "agent/getAuthenticatedExtendedCard",
  "agent/authenticatedExtendedCard": "agent/getAuthenticatedExtendedCard",
  // The following names are from protocol version 0.2.
  "tasks/send": "message/send",
  "tasks/sendSubscribe": "message/stream",
  "tasks/pushNotification/set": "tasks/pushNotificationConfig/set",
  "tasks/pushNotification/get": "tasks/pushNotificationConfig/get",
};

const CANONICAL: ReadonlyMap<string, string> = new Map([
  ...Object.values(OTHER_NAMES).map((name) => [name, name] as const),
  ...Object.entries(OTHER_NAMES),
]);

const WITHOUT_CASE: ReadonlyMap<string, string> = new Map([...CANONICAL.keys()].map((name) => [foldCase(name), name]));

/** Returns the 0.3 name of the method, or undefined if the method is unknown. */
export function canonicalA2aMethod(method: string): string | undefined {
  return CANONICAL.get(method);
}

/** Returns the known method that differs from `method` only in case, or undefined if there is none. */
export function misspelledA2aMethod(method: string): string | undefined {
  if (CANONICAL.has(method)) return undefined;
  return WITHOUT_CASE.get(foldCase(method));
}
