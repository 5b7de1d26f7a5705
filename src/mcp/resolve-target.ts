/**
 * A target with the files that its configuration names: paths relative to the file, and the description of an API read
 * now, so that a mistake in it stops the load.
 */
import type { BackendEnv } from "../core/backend.ts";
import { serverUrl } from "./openapi/api.ts";
import { type OpenApiConfig, openApiSource } from "./openapi/openapi-config.ts";
import type { McpConfig } from "./server-side/target-config.ts";

/** Of an OpenAPI description. */
const MAX_DESCRIPTION_FILE_BYTES = 16 * 1024 * 1024;

export function withResolvedPath(target: McpConfig["targets"][number], env: BackendEnv): McpConfig["targets"][number] {
  const { stdio, openapi } = target;
  if (openapi) return { ...target, openapi: withDescription(openapi, env) };
  if (stdio && env.isConfined) throw new Error("a document of a cluster cannot start a process");
  if (stdio?.cwd !== undefined) return { ...target, stdio: { ...stdio, cwd: env.resolvePath(stdio.cwd) } };
  // Like every path in a file, `./server.sh` is beside it; a bare name is looked up in PATH.
  return stdio && /^\.{1,2}[/\\]/.test(stdio.cmd)
    ? { ...target, stdio: { ...stdio, cmd: env.resolvePath(stdio.cmd) } }
    : target;
}

/** A description in a file is read now, so that a mistake in it stops the load. */
function withDescription(config: OpenApiConfig, env: BackendEnv): OpenApiConfig {
  if (config.file === undefined) return config;
  const text = env.readFile(config.file, MAX_DESCRIPTION_FILE_BYTES);
  try {
    const described = { ...config, source: openApiSource(text) };
    serverUrl(described);
    return described;
  } catch (error) {
    throw new Error(`openapi: ${config.file}: ${error instanceof Error ? error.message : String(error)}`);
  }
}
