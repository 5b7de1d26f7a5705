/**
 * The methods of A2A under one name each. Protocol 1.0 renamed those of 0.3, and agents answer to both: a rule about
 * `tasks/cancel` must hold for `CancelTask`, too. Rules, limits and records read the name of 0.3.
 */
import { foldCase } from "../json/syntax.ts";

/** Names of other revisions, each with that of 0.3. */
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
  // 0.2
  "tasks/send": "message/send",
  "tasks/sendSubscribe": "message/stream",
  "tasks/pushNotification/set": "tasks/pushNotificationConfig/set",
  "tasks/pushNotification/get": "tasks/pushNotificationConfig/get",
};

const CANONICAL: ReadonlyMap<string, string> = new Map([
  ...Object.values(OTHER_NAMES).map((name) => [name, name] as const),
  ...Object.entries(OTHER_NAMES),
]);

/** Each spelling of a known method by its form without case. */
const WITHOUT_CASE: ReadonlyMap<string, string> = new Map([...CANONICAL.keys()].map((name) => [foldCase(name), name]));

/** The name that rules know a method by; undefined for a method that the protocol does not know. */
export function canonicalA2aMethod(method: string): string | undefined {
  return CANONICAL.get(method);
}

/** The known method that an agent which ignores case would take this one for; undefined if it is none, or exactly it. */
export function misspelledA2aMethod(method: string): string | undefined {
  if (CANONICAL.has(method)) return undefined;
  return WITHOUT_CASE.get(foldCase(method));
}
