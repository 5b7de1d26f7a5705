/**
 * Saves a configuration as the web UI does.
 */
export async function saveConfig({ adminUrl, config }, text) {
  try {
    const shown = await (await fetch(`${adminUrl}/ui/api/config-text`)).json();
    const { file, base } = shown.files.find((one) => one.file === config.file);
    const response = await fetch(`${adminUrl}/ui/api/save`, {
      method: "POST",
      headers: { "content-type": "application/json", origin: adminUrl },
      body: JSON.stringify({ file, base, text }),
    });
    return { status: response.status, text: await response.text() };
  } catch (error) {
    return { status: 0, text: String(error.cause ?? error) };
  }
}
