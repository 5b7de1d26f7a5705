/**
 * Lists the backend kinds, selected by the key under `backends[]`. Validation, the JSON schema, and the documentation
 * are derived from this list.
 */
import type { BackendDefinition } from "../core/backend.ts";
import { ai } from "../llm/backend.ts";
import { mcp } from "../mcp/backend.ts";
import { mcpLogins } from "../mcp/logins/connect-backend.ts";
import { a2a } from "./a2a/backend.ts";
import { dynamic } from "./dynamic/backend.ts";
import { host } from "./host/backend.ts";
import { service } from "./service/backend.ts";
import { ui } from "./ui/backend.ts";

export const backends: readonly BackendDefinition[] = [host, service, dynamic, mcp, mcpLogins, a2a, ai, ui];
