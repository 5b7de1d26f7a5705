/**
 * Notices changes of the configuration's files and has them reloaded; what cannot be read is a refused reload.
 */
import { type Watch, watchFiles } from "../config/watch.ts";
import type { ConfigLoader } from "./config-loader.ts";
import type { Reloads } from "./reload.ts";
import type { Services } from "./services.ts";

/** `loaded`: the content of the running configuration, so that a change since it was read counts too. */
export function watchConfig(
  { clock, logger }: Pick<Services, "clock" | "logger">,
  loader: Pick<ConfigLoader, "paths" | "content">,
  reloads: Reloads,
  loaded: string,
): Watch {
  return watchFiles({
    clock,
    paths: loader.paths,
    loaded,
    read: loader.content,
    onChange: () =>
      reloads.reload().then(
        () => undefined,
        (error) => logger.error("reload failed", { error: (error as Error).stack ?? String(error) }),
      ),
    onUnreadable: (error) => reloads.refuse([error.message]),
    onRestored: reloads.restored,
  });
}
