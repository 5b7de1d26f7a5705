/**
 * Why a listener could not be opened, in the words of the file: where the port or address stands, and how the field is
 * called there (`mcp.port`; a listener only knows its gateway's name). In the embedded default, which nobody wrote, what
 * moves it.
 */
import type { Environment } from "./env.ts";
import { type Loaded, loadConfig, type SourceText } from "./load.ts";
import type { NormalConfig, Place } from "./normalize.ts";
import { pathText } from "./yaml-source.ts";

/** As the listeners and the admin interface say it; the address follows. */
const LISTENER = /^gateways\.(.+)\.(port|address): (?=cannot listen on )/;
const PROCESS = /^config\.(adminAddr|statsAddr): (?=cannot listen on )/;

/** A line of another kind, or about something that no file says, comes back as it is. */
export function placedListenProblem(line: string, sources: readonly SourceText[], environment: Environment): string {
  const listener = LISTENER.exec(line);
  const said = listener ?? PROCESS.exec(line);
  const loaded = said && loadConfig(sources, environment);
  if (!said || !loaded?.ok) return line;
  const field = said.at(-1) ?? "";
  const place = listener ? gatewayPlace(loaded.config, listener[1]) : processPlace(loaded, field);
  if (!place) return line;
  const path = [...place.path, field];
  const at = place.document.position(path);
  return `${at.file}:${at.line}:${at.column}: ${pathText(path)}: ${line.slice(said[0].length)}`;
}

function gatewayPlace(config: NormalConfig, name: string | undefined): Place | undefined {
  return config.gateways.find((gateway) => gateway.name === name)?.place;
}

/** The admin interface also listens where no file mentions it. */
function processPlace({ config, standalone }: Extract<Loaded, { ok: true }>, field: string): Place | undefined {
  const isWritten = (config.process as Readonly<Record<string, unknown>>)[field] !== undefined;
  return isWritten ? { document: standalone, path: ["config"] } : undefined;
}

/** The embedded default's ports are variables; its admin address can only be moved by a file. */
export function defaultListenHint(line: string): string {
  const [, name] = LISTENER.exec(line) ?? [];
  const variable = name === "default" ? "PORT" : name === "llm" ? "LLM_PORT" : undefined;
  if (variable !== undefined) return `${line} (the environment variable ${variable} moves this port)`;
  return PROCESS.test(line) ? `${line} (with a file of your own: \`-f\` and \`config.adminAddr\`)` : line;
}
