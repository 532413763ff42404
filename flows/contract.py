"""`floodmark contract`: what the champion has learned, as a file to be edited."""

from flows.installation import Champion, Installation
from infra.contract_file import render_contract
from monitoring.history import History
from monitoring.inspection import Terms
from monitoring.quality import default_severities
from training.errors import ConfigurationError


def champion_of(installation: Installation, history: History) -> Champion:
    """Load the champion.

    Raises:
        ConfigurationError: There is none yet.
    """
    if history.champion is None:
        settings = installation.settings
        raise ConfigurationError(
            f"the model {settings.model} in {settings.store_url} has no champion yet",
            hint="`floodmark run SOURCE` trains the first one; `floodmark status` says where it stands",
        )
    return installation.champion(history.champion)


def learned_contract(installation: Installation, history: History) -> str:
    """Return the text of the contract that is learned from the champion's reference, without any file.

    Raises:
        ConfigurationError: There is no champion yet.
    """
    champion = champion_of(installation, history)
    settings = installation.settings
    terms = Terms(schema=champion.schema, reference=champion.profile, limits=settings.quality)
    return render_contract(
        terms.contract, model=settings.model, version=champion.version, severities=default_severities()
    )
