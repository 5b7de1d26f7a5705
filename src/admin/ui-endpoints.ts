/**
 * Puts the UI together: its files, its own endpoints below `/ui/api/`, and what a copy of it on a gateway may read.
 * Everything is asked for when it is needed, so that the composition root can make this before anything else.
 */
import { openUiFiles, uiFolderNear } from "../backends/ui/files.ts";
import type { UiSource } from "../backends/ui/source.ts";
import type { Environment } from "../config/env.ts";
import type { SourceText } from "../config/load.ts";
import type { Listener } from "../core/topology.ts";
import type { Clock } from "../lib/clock.ts";
import type { Fetch } from "../lib/fetch.ts";
import type { Redaction } from "../trace/redact.ts";
import type { AdminEndpoint } from "./endpoint.ts";
import { uiEndpoint, uiSource } from "./ui.ts";
import { callEndpoint, type ListenerAddress } from "./ui-call.ts";
import { uiConfigEndpoints } from "./ui-config.ts";
import { matchingEndpoint } from "./ui-matching.ts";
import { createPreview } from "./ui-preview.ts";
import { tokenEndpoint } from "./ui-token.ts";

export interface UiParts {
  readonly version: string;
  readonly clock: Clock;
  readonly environment: Environment;
  readonly fetch: Fetch;
  /** `import.meta.url` of the composition root: `dist/ui` is looked for near it. */
  readonly moduleUrl: string;
  redaction(): Redaction;
  /** The configuration's sources as they are now. */
  read(): readonly SourceText[];
  mayEdit(): boolean;
  endpoints(): readonly AdminEndpoint[];
  listeners(): readonly Listener[];
  /** The ports that listeners really have. */
  ports(): ReadonlyMap<string, number>;
}

export interface Ui {
  /** For the admin interface. */
  endpoint(): AdminEndpoint;
  /** For the copy on a gateway. */
  readonly source: UiSource;
}

export function createUi(parts: UiParts): Ui {
  const files = openUiFiles(uiFolderNear(parts.moduleUrl));
  const { version, endpoints } = parts;
  const listener = (name: string): ListenerAddress | undefined => {
    const found = parts.listeners().find((one) => one.name === name);
    const port = parts.ports().get(name);
    if (!found || port === undefined) return undefined;
    return { protocol: found.protocol === "HTTPS" ? "https" : "http", host: reachable(found.address), port };
  };
  return {
    endpoint: () =>
      uiEndpoint({
        version,
        files,
        endpoints,
        mayEdit: parts.mayEdit(),
        own: [
          callEndpoint({ clock: parts.clock, listener }),
          tokenEndpoint({ fetch: parts.fetch, listener }),
          matchingEndpoint(endpoints),
          ...uiConfigEndpoints({
            read: parts.read,
            preview: createPreview(parts),
            redaction: parts.redaction(),
            mayEdit: parts.mayEdit(),
          }),
        ],
      }),
    source: uiSource({ version, files, endpoints }),
  };
}

/** A listener on all interfaces is reached over loopback. */
function reachable(address: string | undefined): string {
  return address === undefined || address === "0.0.0.0" || address === "::" ? "127.0.0.1" : address;
}
