"""Names of models, keys, and where providers are."""

import subprocess
import sys

import pytest

from entracte_server.models import (
    KNOWN_PROVIDERS,
    MissingApiKey,
    Providers,
    ProviderSettings,
    UnknownProvider,
    resolve,
    scripted,
)
from entracte_server.models.providers import MAX_MODELS
from tests.models.support import FakeProvider, ask, choice, text

ANSWER = [*text("Hi"), choice({}, "stop")]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ACME_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, variable in (("openai/x", "OPENAI_API_KEY"), ("openrouter/a/b", "OPENROUTER_API_KEY")):
        with pytest.raises(MissingApiKey, match=variable) as caught:
            Providers().resolve(name)
        assert caught.value.variable == variable
    monkeypatch.setenv("OPENROUTER_API_KEY", "k-123456")
    assert resolve("openrouter/a/b", Providers()).name == "openrouter/a/b"


@pytest.mark.parametrize("name", ["nobody/x", "openai", "openai/", "", "/x"])
def test_an_unknown_provider(name: str) -> None:
    with pytest.raises(UnknownProvider):
        Providers().resolve(name)


def test_a_provider_of_ones_own_needs_an_address() -> None:
    with pytest.raises(ValueError, match="base_url"):
        Providers([ProviderSettings("acme", api_key="k")])


def test_settings_hide_the_key() -> None:
    assert "hunter2" not in repr(ProviderSettings("acme", base_url="http://x", api_key="hunter2"))


def test_the_idle_limit_of_the_process_is_for_those_without_their_own() -> None:
    own = ProviderSettings("acme", base_url="http://x", idle_timeout=7.0)
    providers = Providers([own], idle_timeout=3.0)
    assert providers.settings("acme").idle_timeout == 7.0
    assert providers.settings("openai").idle_timeout == 3.0
    assert KNOWN_PROVIDERS["openai"].idle_timeout is None


async def test_the_variables_of_the_openai_package(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.say(ANSWER)
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
    providers = Providers()
    outcome = await ask(providers.resolve("openai/gpt-x"))
    await providers.aclose()
    assert outcome.text == "Hi"
    assert provider.requests[0].headers["authorization"] == "Bearer from-the-environment"
    assert provider.requests[0].body["model"] == "gpt-x"


async def test_a_key_from_another_variable(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    provider.say(ANSWER)
    monkeypatch.setenv("MY_KEY", "mine-123")
    providers = Providers([ProviderSettings("acme", base_url=provider.url, api_key_variable="MY_KEY")])
    await ask(providers.resolve("acme/m"))
    monkeypatch.delenv("MY_KEY")
    await providers.aclose()
    outcome = await ask(providers.resolve("acme/m"))
    assert provider.requests[0].headers["authorization"] == "Bearer mine-123"
    assert outcome.error is not None
    assert "MY_KEY" in outcome.error.message


async def test_no_key_where_none_is_needed(provider: FakeProvider) -> None:
    provider.say(ANSWER)
    providers = Providers([ProviderSettings("acme", base_url=provider.url, requires_key=False)])
    assert (await ask(providers.resolve("acme/m"))).text == "Hi"
    await providers.aclose()


async def test_what_is_for_openai_goes_to_nobody_else(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai-1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gate: secret-2\nX-Both: env\nAuthorization: secret-3")
    provider.say(ANSWER)
    both = {"X-Both": "mine"}
    providers = Providers(
        [
            ProviderSettings("acme", base_url=provider.url, api_key="for-acme-1", headers=both),
            ProviderSettings("openai", base_url=provider.url),
        ]
    )
    await ask(providers.resolve("acme/m"))
    await ask(providers.resolve("openai/m"))
    await providers.aclose()
    to_acme, to_openai = (request.headers for request in provider.requests)
    for secret in ("for-openai-1", "org-1", "project-1", "secret-2", "secret-3"):
        assert secret not in str(to_acme)
    for secret in ("org-1", "project-1", "secret-2", "secret-3"):
        assert secret in str(to_openai)
    assert to_acme["authorization"] == "Bearer for-acme-1"
    assert to_acme["x-both"] == "mine"


async def test_models_of_a_provider_share_its_connections(provider: FakeProvider) -> None:
    provider.say(ANSWER)
    providers = Providers([ProviderSettings("acme", base_url=provider.url, api_key="k-1234567")])
    assert providers.resolve("acme/a") is providers.resolve("acme/a")
    for name in ("a", "b/c"):
        assert (await ask(providers.resolve(f"acme/{name}"))).text == "Hi"
    await providers.aclose()
    assert provider.connections == 1
    assert [request.body["model"] for request in provider.requests] == ["a", "b/c"]


def test_any_number_of_models_can_be_named_and_not_all_are_kept() -> None:
    providers = Providers()
    assert providers.resolve("ollama/first") is providers.resolve("ollama/first")
    for number in range(MAX_MODELS):
        providers.resolve(f"ollama/m{number}")
    assert providers.resolve("ollama/last").name == "ollama/last"
    assert providers.resolve("ollama/last") is not providers.resolve("ollama/last")
    assert providers.resolve("ollama/first") is providers.resolve("ollama/first")


def test_models_can_be_registered() -> None:
    providers = Providers()
    model = scripted([[{"text": "a"}]], name="scripted/demo")
    providers.register(model)
    assert providers.resolve("scripted/demo") is model


def test_the_openai_package_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, entracte_server.models as m;"
        "p = m.Providers([m.ProviderSettings('a', base_url='http://x', api_key='k')]);"
        "p.resolve('a/b').request_body;"
        "sys.exit(any(name in sys.modules for name in ('openai', 'httpx2', 'aiohttp')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
