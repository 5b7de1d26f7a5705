/**
 * `/debug/mcp/sessions` ends a session, `/debug/mcp/connections` lists, tests, and revokes connected accounts,
 * `/debug/mcp/tools` lists the tools of the servers, and `/debug/mcp/lock` shows and accepts differences from the
 * lock file.
 */

import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Backend, ConnectedAccounts, InspectedBackend, InspectedTarget } from "../../core/backend.ts";
import type { Topology } from "../../core/topology.ts";
import { defined } from "../../json/json.ts";
import { readJson, tryReadJson } from "../../json/read-json.ts";
import {
  changesSince,
  type LockedTools,
  readLockFile,
  type ToolChange,
  withChanges,
  writeLockFile,
} from "../../mcp/tools/tool-lock.ts";
import type { Logger } from "../../record/log/logger.ts";
import { type AdminEndpoint, type AdminResponse, jsonResponse, textResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const BODY = peerInput("admin-client/body");

export function mcpSessionsEndpoint(topology: () => Topology): AdminEndpoint {
  return {
    path: ADMIN_PATHS.mcpSessions,
    doc: 'POST {"end": "<shown id>"}: ends an MCP session.',
    async POST(request) {
      const shown = parseShownId(await request.body());
      if (shown === undefined) return textResponse(400, 'send {"end": "<id as /debug/tasks shows it>"} as JSON\n');
      const backends = new Set(
        topology().listeners.flatMap(({ routes }) =>
          routes.flatMap((route) => route.backends.map(({ backend }) => backend)),
        ),
      );
      let found = 0;
      for (const backend of backends) {
        const count = backend.mcp?.endSession(shown) ?? 0;
        if (count > 1) return textResponse(409, `${count} sessions begin like this; none was ended\n`);
        found += count;
      }
      return found === 0 ? textResponse(404, "no such session\n") : jsonResponse({ ended: shown });
    },
  };
}

function parseShownId(body: Buffer): string | undefined {
  try {
    const { end } = readJson(BODY, body) as { end?: unknown };
    if (typeof end !== "string" || end.length < 8 || end.length > 16) return undefined;
    // `/debug/tasks` shows IDs with an ellipsis, which the client may omit.
    return end.endsWith("…") ? end : `${end}…`;
  } catch {
    return undefined;
  }
}

export function mcpConnectionsEndpoint(topology: () => Topology): AdminEndpoint {
  return {
    path: ADMIN_PATHS.mcpConnections,
    doc: "Accounts that users connected at MCP servers. POST with `action` test or revoke, and `id`.",
    async GET() {
      const lists = await Promise.all(
        accounts(topology()).map(async ({ backend, of }) =>
          (await of.list()).map((account) => ({ backend, ...account })),
        ),
      );
      return jsonResponse({ connections: lists.flat() });
    },
    async POST(request) {
      const question = parseAction(await request.body());
      if (question === undefined) return textResponse(400, 'send {"action": "test" or "revoke", "id": "…"} as JSON\n');
      for (const { of } of accounts(topology())) {
        const outcome = await of[question.action](question.id);
        if (outcome) return jsonResponse(outcome);
      }
      return unknownConnection();
    },
  };
}

function unknownConnection(): AdminResponse {
  return textResponse(404, "no connection has this id; `gwctl mcp connections` lists them\n");
}

function accounts({ listeners }: Topology): { backend: string; of: ConnectedAccounts }[] {
  const found = new Map<string, ConnectedAccounts>();
  for (const { routes } of listeners)
    for (const route of routes)
      for (const { backend } of route.backends)
        if (backend.mcp?.accounts) found.set(backend.attributes.name, backend.mcp.accounts);
  return [...found].map(([backend, of]) => ({ backend, of }));
}

function parseAction(body: Buffer): { readonly action: "test" | "revoke"; readonly id: string } | undefined {
  try {
    const { action, id } = readJson(BODY, body) as { action?: unknown; id?: unknown };
    if ((action === "test" || action === "revoke") && typeof id === "string" && id !== "") return { action, id };
  } catch {
    // The caller responds with an error.
  }
  return undefined;
}

export function mcpToolsEndpoint(topology: () => Topology): AdminEndpoint {
  return {
    path: ADMIN_PATHS.mcpTools,
    doc: "Tools withheld from clients. POST: the tools of every MCP server, queried now, and how they differ from the lock file.",
    GET() {
      const backends = inspectedBackends(topology()).map((backend) => ({
        backend: backend.attributes.name,
        targets: backend.mcp?.withheld() ?? [],
      }));
      return jsonResponse({ backends });
    },
    async POST({ withheld }) {
      const backends = await Promise.all(
        inspectedBackends(topology()).map(async (backend) => ({
          backend: backend.attributes.name,
          targets: await inspectedTargets(backend, withheld),
        })),
      );
      return jsonResponse({ backends });
    },
  };
}

export function inspectedBackends({ listeners }: Topology): Backend[] {
  const all = listeners.flatMap(({ routes }) =>
    routes.flatMap((route) => route.backends.map(({ backend }) => backend)),
  );
  return [...new Set(all)].filter((backend) => backend.mcp !== undefined);
}

/**
 * Resolves with the tools of each server in `only`, or of all servers. For a server that cannot be queried, the tools
 * in `withheld` are added.
 */
export async function inspectedTargets(
  backend: Backend,
  withheld: readonly InspectedBackend[] = [],
  only?: ReadonlySet<string>,
): Promise<readonly InspectedTarget[]> {
  const seen = withheld.filter((one) => one.backend === backend.attributes.name).flatMap(({ targets }) => targets);
  return ((await backend.mcp?.inspect(only)) ?? []).map((target) => {
    if (target.error === undefined) return target;
    const tools = new Map(target.tools.map((tool) => [tool.name, tool]));
    for (const other of seen.filter((one) => one.target === target.target))
      for (const tool of other.tools) tools.set(tool.name, tool);
    return { ...target, tools: [...tools.values()] };
  });
}

export interface McpLockParts {
  readonly logger: Logger;
  readonly mayEdit: boolean;
  topology(): Topology;
}

const acceptedSchema = z.strictObject({ target: z.string(), tool: z.string(), hash: z.string() });
const questionSchema = z.strictObject({
  backend: z.string(),
  accept: z.array(acceptedSchema).min(1).optional(),
  acceptSuspicious: z.boolean().default(false),
});

type Accepted = z.output<typeof acceptedSchema>;

const MAX_SHOWN_REJECTIONS = 20;
const NOT_ALLOWED = "accepting tools is not allowed; set `config.allowConfigEdit: true`, or use `gwctl mcp lock`";

export function mcpLockEndpoint({ logger, mayEdit, topology }: McpLockParts): AdminEndpoint {
  return {
    path: ADMIN_PATHS.mcpLock,
    doc: 'POST {"backend"}: how the tools of its MCP servers differ from the lock file. With `accept`: accepts differences.',
    async POST(request) {
      const question = questionSchema.safeParse(tryReadJson(BODY, await request.body()));
      if (!question.success) return textResponse(400, `${z.prettifyError(question.error)}\n`);
      const { backend: name, accept, acceptSuspicious } = question.data;
      if (accept !== undefined && !mayEdit) return textResponse(403, `${NOT_ALLOWED}\n`);
      const backend = inspectedBackends(topology()).find(({ attributes }) => attributes.name === name);
      if (backend === undefined) return textResponse(404, "no MCP backend has this name\n");
      const lockFile = backend.mcp?.lockFile;
      if (lockFile === undefined) return textResponse(409, "this backend has no lock file that could be written\n");
      const only = accept && new Set(accept.map(({ target }) => target));
      const inspected = await inspectedTargets(backend, request.withheld, only);
      // The code from here to the file write is synchronous, so concurrent requests cannot overwrite each other's
      // changes.
      const locked = lockedTools(lockFile);
      if ("problem" in locked) return textResponse(409, `${locked.problem}\n`);
      const changes = changesSince(locked.tools, inspected);
      if (accept === undefined) return jsonResponse(review(backend, lockFile, inspected, changes, mayEdit));
      const chosen = accept.map((one) => choose(one, changes, inspected, acceptSuspicious));
      const rejections = chosen.filter((one) => typeof one === "string");
      if (rejections.length > 0) return textResponse(409, rejectionText(rejections));
      const accepted = chosen.filter((one) => typeof one !== "string");
      const failure = written(lockFile, withChanges(locked.tools, accepted));
      if (failure) return failure;
      const tools = accepted.map(({ target, tool }) => `${target}/${tool}`);
      logger.info("MCP tools accepted", { backend: name, file: lockFile, tools: tools.join(" ").slice(0, 500) });
      return jsonResponse({ backend: name, file: lockFile, accepted: tools });
    },
  };
}

function review(
  { attributes }: Backend,
  file: string,
  inspected: readonly InspectedTarget[],
  changes: readonly ToolChange[],
  mayEdit: boolean,
) {
  return {
    backend: attributes.name,
    file,
    mayAccept: mayEdit,
    ...(mayEdit ? {} : { reason: NOT_ALLOWED }),
    targets: inspected.map(({ target, tools, error }) => ({
      target,
      tools: tools.length,
      ...defined({ error }),
    })),
    changes,
  };
}

function choose(
  { target, tool, hash }: Accepted,
  changes: readonly ToolChange[],
  inspected: readonly InspectedTarget[],
  acceptSuspicious: boolean,
): ToolChange | string {
  const own = changes.filter((one) => one.target === target && one.tool === tool);
  const shown = own.find((one) => one.hash === hash);
  if (shown !== undefined)
    return shown.suspicious.length === 0 || acceptSuspicious
      ? shown
      : `${target}/${tool} looks suspicious (${shown.suspicious.join("; ")}); accept it with \`acceptSuspicious\``;
  if (own.length > 0) return `${target}/${tool} has changed since it was shown; look at it again`;
  const from = inspected.find((one) => one.target === target);
  if (from === undefined) return `${target}/${tool}: this backend has no server with this name`;
  return from.error === undefined
    ? `${target}/${tool} no longer differs from the lock file; reload the page`
    : `${target}/${tool}: the server cannot be queried (${from.error}), and no session saw the tool since the last reload`;
}

function rejectionText(rejections: readonly string[]): string {
  const more = rejections.length - MAX_SHOWN_REJECTIONS;
  return `nothing was accepted:\n${[...rejections.slice(0, MAX_SHOWN_REJECTIONS), ...(more > 0 ? [`and ${more} more`] : [])].join("\n")}\n`;
}

function lockedTools(file: string): { readonly tools: LockedTools } | { readonly problem: string } {
  try {
    const tools = readLockFile(file);
    // A new file with only the accepted tools would withhold every other tool.
    return tools ? { tools } : { problem: `${file} no longer exists; write it with \`gwctl mcp lock\`` };
  } catch (error) {
    return { problem: (error as Error).message };
  }
}

function written(file: string, tools: LockedTools): AdminResponse | undefined {
  try {
    writeLockFile(file, tools);
    return undefined;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const isFull = code === "ENOSPC" || code === "EDQUOT";
    return textResponse(isFull ? 507 : 500, `cannot write ${file}: ${message}\n`);
  }
}
