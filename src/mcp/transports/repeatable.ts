/**
 * Messages that a server may get twice without harm: they read, or open what is not known yet. If a kept connection turns
 * out to be closed under one of them, it is sent once more over another; under a tool call it is not, because the server may
 * have begun.
 */
const REPEATABLE: ReadonlySet<string> = new Set([
  "initialize",
  "notifications/initialized",
  "ping",
  "server/discover",
  "tools/list",
  "prompts/list",
  "prompts/get",
  "resources/list",
  "resources/templates/list",
  "resources/read",
  "completion/complete",
]);

export function mayRepeat(method: string | undefined): boolean {
  return method !== undefined && REPEATABLE.has(method);
}
