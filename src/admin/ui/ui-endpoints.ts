/**
 * Puts the UI together: its files, its own endpoints below `/ui/api/`, and what a copy of it on a gateway may read.
 * The copy is made before the configuration that serves it; the endpoint after everything that it shows.
 */
import { openUiFiles, uiFolderNear } from "../../backends/ui/files.ts";
import type { UiSource } from "../../backends/ui/source.ts";
import type { Clock } from "../../base/clock.ts";
import { embeddedFolder } from "../../base/embedded-files.ts";
import type { SourceText } from "../../config/load/load.ts";
import type { Environment } from "../../config/text/env.ts";
import type { Listener } from "../../core/topology.ts";
import type { Fetch } from "../../http/fetch.ts";
import type { Redaction } from "../../observe/trace/redact.ts";
import type { AdminEndpoint } from "../server/endpoint.ts";
import { addEndpoint } from "./add-entry.ts";
import { callEndpoint, type ListenerAddress } from "./call.ts";
import { uiConfigEndpoints } from "./config-text.ts";
import { matchingEndpoint } from "./matching.ts";
import { createPreview } from "./preview.ts";
import { tokenEndpoint } from "./token.ts";
import { uiEndpoint, uiSource } from "./ui.ts";

export interface UiParts {
  readonly version: string;
  /** `import.meta.url` of the composition root: `dist/ui` is looked for near it. */
  readonly moduleUrl: string;
  /** The admin interface's; asked when a page is served. */
  endpoints(): readonly AdminEndpoint[];
}

export interface UiEndpointParts {
  readonly clock: Clock;
  readonly environment: Environment;
  readonly fetch: Fetch;
  readonly redaction: Redaction;
  readonly mayEdit: boolean;
  /** The configuration's sources as they are now. */
  read(): readonly SourceText[];
  listeners(): readonly Listener[];
  /** The ports that listeners really have. */
  ports(): ReadonlyMap<string, number>;
}

export interface Ui {
  /** For the copy on a gateway. */
  readonly source: UiSource;
  /** For the admin interface. */
  endpoint(parts: UiEndpointParts): AdminEndpoint;
}

export function createUi({ version, moduleUrl, endpoints }: UiParts): Ui {
  const files = openUiFiles(embeddedFolder("ui") ?? uiFolderNear(moduleUrl));
  return {
    source: uiSource({ version, files, endpoints }),
    endpoint(parts) {
      const { clock, fetch, redaction, mayEdit, read } = parts;
      const listener = (name: string): ListenerAddress | undefined => {
        const found = parts.listeners().find((one) => one.name === name);
        const port = parts.ports().get(name);
        if (!found || port === undefined) return undefined;
        return { protocol: found.protocol === "HTTPS" ? "https" : "http", host: reachable(found.address), port };
      };
      return uiEndpoint({
        version,
        files,
        endpoints,
        mayEdit,
        own: [
          callEndpoint({ clock, listener }),
          tokenEndpoint({ fetch, listener }),
          matchingEndpoint(endpoints),
          addEndpoint({ read, redaction }),
          ...uiConfigEndpoints({ read, preview: createPreview(parts), redaction, mayEdit }),
        ],
      });
    },
  };
}

/** A listener on all interfaces is reached over loopback. */
function reachable(address: string | undefined): string {
  return address === undefined || address === "0.0.0.0" || address === "::" ? "127.0.0.1" : address;
}
