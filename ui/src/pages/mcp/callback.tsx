/**
 * Where an identity provider sends the sign-in window back to: it tells the page that opened it, and closes.
 */
import { useEffect } from "preact/hooks";
import { param } from "../../frame/router.ts";
import { Empty } from "../../parts/panel.tsx";
import { LOGIN_CHANNEL, type LoginAnswer } from "./login.ts";

export function Callback() {
  const error = param("error");
  useEffect(() => {
    const channel = new BroadcastChannel(LOGIN_CHANNEL);
    const description = param("error_description");
    const answer: LoginAnswer = {
      state: param("state") || null,
      code: param("code") || null,
      error: error === "" ? null : `${error}${description === "" ? "" : `: ${description}`}`,
    };
    channel.postMessage(answer);
    channel.close();
    // The code is good for one use, but has no business in the history.
    history.replaceState(null, "", "/ui/callback");
    if (error === "") window.close();
  }, [error]);
  return (
    <Empty
      title={error === "" ? "Signed in. You can close this window." : `The provider rejected the login: ${error}`}
    />
  );
}
