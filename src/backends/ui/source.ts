/**
 * What the copy of the UI on a gateway may ask of the process. The composition root passes one in; the backend
 * itself knows neither the admin interface nor the configuration, so nothing beyond these reads can leak through it.
 */
import type { UiFiles } from "./files.ts";

export interface UiAnswer {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer;
}

export interface UiSource {
  readonly files: UiFiles;
  /** A read of the API, by what follows `/ui/api/`; undefined if this copy does not offer it. */
  read(name: string, query: URLSearchParams): Promise<UiAnswer | undefined>;
}
